"""The measurement of a model over samples; it has no effect on training."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.redaction import redact, shortened
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import OpenTask, Samples
from mltrainer.tasks.strategy import Forward
from mltrainer.tasks.structures import joined, mapped, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import evaluation_batches, own_batches
from mltrainer.trainers.native.objective import buffers_kept, summed
from mltrainer.trainers.native.optimization.precision import autocast, full
from mltrainer.trainers.native.ranks import Ranks

MOST = 2000  # training samples to search for neighbours
NEIGHBOURS = 20  # as in Wu et al., 2018, arXiv 1805.01978, for a small data set; without weights
MEND = "return numbers from {method}, such as tensor.item()"


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation.

    Attributes:
        metrics: The loss and the task's metrics.
        outputs: The outputs of all samples, on the CPU; empty if they were not kept.
        targets: The targets of all samples, on the CPU; empty if they were not kept.
        beside: The names of metrics other than the task's own.
    """

    metrics: dict[str, float]
    outputs: Any
    targets: Any
    beside: tuple[str, ...] = ()

    @property
    def held_bytes(self) -> int:
        """Return the size of outputs and targets."""
        return sum(tensor.nbytes for tensor in tensors_in((self.outputs, self.targets)))


@dataclass(frozen=True)
class _Part:
    """A batch of an evaluation: number, kept outputs and targets (or None), summed loss, and its number of items."""

    number: int
    held: tuple[Any, Any] | None
    loss: Tensor
    items: Any


@torch.no_grad()
def evaluate(
    task: Task,
    model: nn.Module,
    config: TrainingConfig,
    samples: Samples,
    split: str,
    positions: np.ndarray | None = None,
    hold: bool = False,
    ranks: Ranks | None = None,
    forward: Forward | None = None,
) -> Evaluated:
    """Measure loss and metrics over samples in evaluation mode.

    Args:
        task: The task, with its loss and metrics.
        model: The model, on its device.
        config: The config, with seed, device and precision.
        samples: The measured samples.
        split: The split's name, which addresses its random draws.
        positions: The positions of the measured samples, in order; None for all.
        hold: Whether outputs and targets are kept even if the task's metrics do not need them.
        ranks: The processes that share the batches, unless the task accumulates its metrics; None: this one alone.
        forward: The function from a batch to outputs and targets; None: the task's forward pass with the model.

    Raises:
        InputError: Metrics are not numbers, or batches that must be kept do not fit together.
    """
    positions = np.arange(len(samples)) if positions is None else positions
    streams, keep, state, parts = accumulates(task), hold or needs_outputs(task), None, []
    # The state of `accumulate` cannot be merged: each process then measures every batch itself.
    sharing = Ranks() if ranks is None or streams else ranks
    forward = functools.partial(task.forward, model) if forward is None else forward
    with evaluating(model):
        for number, output, target, loss in _batches(task, forward, config, samples, split, positions, sharing):
            if streams:
                state = task.accumulate(state, full(output), target)
            items = task.loss_items(target)
            parts.append(_Part(number, (output, target) if keep else None, summed(loss.detach().double(), items), items))
    parts = _of_all(parts, sharing, config.device)
    mean = float(torch.stack([part.loss for part in parts]).sum() / sum(part.items for part in parts))
    held = [part.held for part in parts if part.held is not None]
    outputs = _float(_together([each for each, _ in held], "outputs"))
    targets = _together([each for _, each in held], "targets")
    if streams:
        measured = as_numbers(task.compute(state), "compute(self, state)")
    else:
        measured = as_numbers(task.metrics(outputs, targets))
    return Evaluated({"loss": mean, **measured}, outputs, targets)


def measured(
    opened: OpenTask,
    model: nn.Module,
    samples: Samples,
    split: str,
    positions: np.ndarray | None = None,
    hold: bool = False,
    ranks: Ranks | None = None,
) -> Evaluated:
    """Measure as `evaluate` does, and add the strategies' metrics, such as metrics of attacked inputs.

    Args:
        opened: The task with its strategies and its config.
        model: The model, on its device.
        samples: The measured samples.
        split: The split's name, which addresses its random draws.
        positions: The positions of the measured samples, in order; None for all.
        hold: Whether outputs and targets are kept even if the task's metrics do not need them.
        ranks: The processes that share the batches; None: this one alone.

    Returns:
        Outputs and targets as from `evaluate`; the strategies' metrics have a prefix, such as `robust_accuracy`.
    """
    found = evaluate(opened.task, model, opened.config, samples, split, positions, hold, ranks)
    beside: dict[str, float] = {}
    for word, forward in opened.strategies.views(opened.training(model)).items():
        others = evaluate(opened.task, model, opened.config, samples, split, positions, ranks=ranks, forward=forward).metrics
        beside |= {f"{word}_{name}": value for name, value in others.items()}
    if (features := opened.strategies.features(opened.training(model))) is not None:
        with evaluating(model):
            beside |= neighbour_metrics(opened.task, opened.config, features, opened.split("train"), samples, split)
    return replace(found, metrics={**found.metrics, **beside}, beside=tuple(beside))


def _batches(
    task: Task, forward: Forward, config: TrainingConfig, samples: Samples, split: str, positions: np.ndarray, ranks: Ranks
) -> Iterator[tuple[int, Any, Any, Tensor]]:
    """Yield number, outputs, targets and mean loss of each batch that this process measures, each with its own random draws."""
    numbers, own = own_batches(positions, ranks.rank, ranks.size)
    for number, batch in zip(numbers, evaluation_batches(samples, own, config, split), strict=True):
        # By the batch's number in the split, not by a count in this process: a batch has the same draws in any process.
        seeds.seed_everything(seeds.key(config.seed, "evaluate", number))
        with autocast(config):
            output, target = forward(batch)
            loss = task.loss(full(output), target)
        yield number, output, target, loss


def _of_all(parts: list[_Part], ranks: Ranks, device: str) -> list[_Part]:
    """Return the batches of all processes in the order of their numbers, in which their losses are added."""
    if ranks.size == 1:
        return parts
    given = ranks.gather([_moved(part, "cpu") for part in parts])  # no process can read from another's GPU
    return sorted((_moved(part, device) for part in itertools.chain(*given)), key=lambda part: part.number)


def _moved(part: _Part, device: str) -> _Part:
    """Return a batch's numbers on a device; kept outputs and targets are always on the CPU."""
    loss, items = mapped(lambda tensor: tensor.to(device), (part.loss, part.items))
    return _Part(part.number, mapped(Tensor.cpu, part.held), loss, items)


def accumulates(task: Task) -> bool:
    """Return True if a task's metrics are accumulated from batch to batch."""
    return writes(task, "accumulate")


def needs_outputs(task: Task) -> bool:
    """Return True if a task's metrics are computed from the outputs of a whole split."""
    return writes(task, "metrics") and not accumulates(task)


def writes(task: Task, *names: str) -> bool:
    """Return True if a task overrides one of the named methods of `Task`, such as `metrics`; `Task`'s own read no outputs."""
    return any(getattr(getattr(task, name), "__func__", None) is not getattr(Task, name) for name in names)


def as_numbers(given: Any, method: str = "metrics(self, outputs, targets)") -> dict[str, float]:
    """Return a task's metrics as floats by name.

    Raises:
        InputError: The metrics are not a dict of numbers by name.
    """
    name_of, hint = method.partition("(")[0], MEND.format(method=method)
    if not isinstance(given, Mapping):
        raise InputError(name_of, expected="a dict of numbers by name", found=type(given).__name__, hint=hint)
    for name, value in given.items():
        single = value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, numbers.Real)
        if not (isinstance(name, str) and single):
            what = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else shortened(repr(value), 80)
            raise InputError(f"{name_of}, {name!r}", expected="a number", found=what, hint=hint)
    return {_without_secrets(name): float(value) for name, value in given.items()}


_without_secrets = functools.lru_cache(maxsize=1000)(redact)  # cached: names are the same in every evaluation


def _together(parts: list[Any], what: str) -> Any:
    """Return the batches concatenated, on the CPU.

    Raises:
        InputError: The batches differ in shape.
    """
    if not parts:
        return torch.zeros(0)
    try:
        return mapped(Tensor.cpu, joined(parts))
    except RuntimeError as error:
        # torch has no separate class for this error, and running out of memory is a RuntimeError too.
        if "Sizes of tensors must match" not in str(error):
            raise
        raise InputError(
            f"the {what} of a split's batches differ in shape, and metrics reads them as one: {error}",
            where="task.use",
            hint="write accumulate(self, state, outputs, targets) and compute(self, state) in place of metrics and evaluation",
        ) from error


def _float(outputs: Any) -> Any:
    return outputs.float() if isinstance(outputs, Tensor) else full(outputs)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a block; buffers that change even there, such as counters, are restored afterwards."""
    with buffers_kept(model):
        model.eval()
        yield
        model.train()


# --- neighbours among features ---------------------------------------------------------------------


def neighbour_metrics(
    task: Task, config: TrainingConfig, features: Callable[[Any], Tensor], train: Samples, samples: Samples, split: str
) -> dict[str, float]:
    """Return metrics of some samples' features.

    Args:
        task: The task; it decides whether targets are class numbers.
        config: The config, with seed and device.
        features: The function from a batch to [samples, features]; the model is in evaluation mode.
        train: The training samples.
        samples: The measured samples.
        split: The name of the measured samples' split.

    Returns:
        `feature_spread`, the standard deviation of the features, each sample's scaled to length 1, times the root of their number
        (Chen and He, 2021, arXiv 2011.10566): about 1 if they point everywhere, 0 if all samples have the same; and for
        class numbers `knn_accuracy`, the accuracy of a vote of the nearest training samples by the cosine.
    """
    found, targets = _embedded(task, config, features, samples, split, np.arange(len(samples)))
    scaled = torch.nn.functional.normalize(found.double(), dim=1)
    measured = {"feature_spread": float(scaled.std(0, correction=0).mean()) * math.sqrt(scaled.shape[1])}
    if targets is None:
        return measured
    from sklearn.neighbors import KNeighborsClassifier  # here, because its import takes a second, and few trainings need it

    near, labels = _embedded(task, config, features, train, "train", train.spread(MOST))
    assert labels is not None
    classifier = KNeighborsClassifier(min(NEIGHBOURS, len(labels)), metric="cosine", algorithm="brute").fit(
        near.numpy(), labels.numpy()
    )
    return {**measured, "knn_accuracy": float((classifier.predict(found.numpy()) == targets.numpy()).mean())}


@torch.no_grad()
def _embedded(
    task: Task, config: TrainingConfig, features: Callable[[Any], Tensor], samples: Samples, split: str, positions: np.ndarray
) -> tuple[Tensor, Tensor | None]:
    """Return features and class numbers of some samples, on the CPU; None instead of targets that are not class numbers."""
    parts = [(features(batch).cpu(), task.targets_of(batch)) for batch in evaluation_batches(samples, positions, config, split)]
    targets = [part for _, part in parts]
    are_classes = all(isinstance(part, Tensor) and part.dtype == torch.int64 and part.dim() == 1 for part in targets)
    return torch.cat([part for part, _ in parts]), torch.cat([part.cpu() for part in targets]) if are_classes else None
