"""The settings of a training that a strategy does not go with, for each thing that strategies do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from mltrainer.configs.strategies import Adversarial, Balancing, Distillation, Lora, Masked, Probing, Quantization, Strategy

WHOLE = ("tensor_parallel", "fsdp", "pipeline")  # under which no process has the whole model
OWN_PARTS = "which gives the model parts of its own"
OWN_AVERAGE = "whose teacher is the average of whole parameters"


class Limit(NamedTuple):
    """Something that a strategy does, as it is written behind its name, and what cannot be beside that."""

    does: str
    excludes: Collection[str]


CALLS_AGAIN = Limit("which goes through the model again in a step", ("compile", *WHOLE))
CHANGES_LAYERS = Limit("which changes what a layer gives", ("gradient_checkpointing",))  # and not where it is computed again
READS_LAYERS = Limit("which reads the model's layers", ("compile", "gradient_checkpointing", *WHOLE))
COMPARES_GRADIENTS = Limit(
    # Gradients that are too small for fp16 become 0 without the scaling.
    "which takes the gradient of each loss before that is scaled",
    ("gradient_checkpointing", "precision: fp16"),
)
ADDS_PARTS = Limit(OWN_PARTS, ("averaged weights", "tensor_parallel"))
AVERAGES = Limit(OWN_AVERAGE, WHOLE)
ASKS_ONCE = Limit("which asks the teacher of each sample once", ("augment", "progressive"))


def limits_of(strategy: Strategy, kind: str | None) -> Iterator[Limit]:
    """Yield the limits of a strategy.

    Args:
        strategy: The strategy's settings.
        kind: The kind of the built-in task; None for a custom task.
    """
    by_gradients = isinstance(strategy, Balancing) and strategy.method == "gradients"
    if isinstance(strategy, Adversarial | Probing) or by_gradients:
        yield CALLS_AGAIN
    if isinstance(strategy, Masked) or moves_embeddings(strategy, kind):
        yield CHANGES_LAYERS
    if by_gradients:
        yield COMPARES_GRADIENTS
    # Where the task makes losses of what the model gives, that is read in the model.
    if isinstance(strategy, Distillation) and (strategy.features or (kind == "text_generation" and strategy.texts is None)):
        yield READS_LAYERS
    if isinstance(strategy, Distillation) and strategy.reads_once:
        yield ASKS_ONCE
    if isinstance(strategy, Distillation) and strategy.teacher.ema is not None:
        yield AVERAGES
    if isinstance(strategy, Lora | Probing | Quantization | Balancing) and not by_gradients:
        yield ADDS_PARTS


def moves_embeddings(strategy: Strategy, kind: str | None) -> bool:
    """Return True if a strategy moves inputs within the model."""
    return isinstance(strategy, Adversarial) and (strategy.layer is not None or str(kind).startswith("text"))


def excluded(strategies: Sequence[Strategy], kind: str | None, present: Collection[str]) -> tuple[str, str] | None:
    """Return a strategy, with what it does, and what of the settings that are present it excludes; None: it goes together.

    Args:
        strategies: The config's strategies.
        kind: The kind of the built-in task; None for a custom task.
        present: Words for settings, as limits have them.
    """
    for strategy in strategies:
        for limit in limits_of(strategy, kind):
            if (what := next((word for word in present if word in limit.excludes), None)) is not None:
                return f"{strategy.name}, {limit.does}", what
    return None


def rivals(strategies: Sequence[Strategy], kind: str | None) -> list[str]:
    """Return the names of the strategies that need the model's parameters as they are, or change them: one at most can be."""
    does = {OWN_PARTS, OWN_AVERAGE}
    return [one.name for one in strategies if any(limit.does in does for limit in limits_of(one, kind))]
