"""The ways that fit into a memory, their largest micro-batches, and the recommended one: pure decisions.

Ways are tried from the cheapest on: a smaller micro-batch costs little time and no bit of the gradient's meaning;
computing blocks again costs a forward pass; a lower precision and another optimizer change the numbers; further processes cost
machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mltrainer.companions.planner.memory import Parts

Sized = Callable[[int], Parts]  # memory by micro-batch


@dataclass(frozen=True)
class Way:
    """A way to train with the same samples in a step.

    Attributes:
        name: The way in words.
        changes: Changes of the config by dotted key, beside batch and accumulation.
        parts: Memory by micro-batch and accumulation.
        refused: Reason why the trainer refuses it; None: it does not.
        not_known: Reason why its memory is unknown; None: it is known.
    """

    name: str
    changes: dict[str, Any]
    parts: Callable[[int, int], Parts] | None
    refused: str | None = None
    not_known: str | None = None


@dataclass(frozen=True)
class Choice:
    """The largest micro-batch of a way that fits, with the accumulation that keeps a step's samples."""

    way: Way
    batch: int
    accumulate: int
    parts: Parts


def micro_batches(samples: int, processes: int = 1) -> list[int]:
    """Return the micro-batches that share a step's samples equally, falling; each process has one at least."""
    return [size for size in range(samples, 0, -1) if samples % size == 0 and samples // size >= processes]


def largest(way: Way, samples: int, limit: float, processes: int = 1, most: int | None = None) -> Choice | None:
    """Return the largest micro-batch of a way with a peak within a limit of bytes; None without one, or if memory is unknown.

    Args:
        way: The way.
        samples: Samples of a step.
        limit: Limit of one process, in bytes.
        processes: Number of processes that share a step.
        most: Largest allowed micro-batch, such as the number of training samples; None: any.
    """
    if way.parts is None or way.refused is not None:
        return None
    for batch in micro_batches(samples, processes):
        accumulate = samples // batch
        if most is not None and batch > most:
            continue
        parts = way.parts(batch, accumulate)
        if parts.total <= limit:
            return Choice(way, batch, accumulate, parts)
    return None


@dataclass(frozen=True)
class Recommendation:
    """The keys to set, empty for no change, and the reason; `choice` is None if nothing fits."""

    choice: Choice | None
    set: dict[str, Any]
    reason: str


def recommend(choices: Sequence[Choice | None], batch: int, accumulate: int, limit_words: str) -> Recommendation:
    """Return the first way that fits.

    Args:
        choices: Largest micro-batch of each way, the cheapest first; the config's own way comes first.
        batch: The config's micro-batch.
        accumulate: The config's accumulation.
        limit_words: The memory in words.
    """
    found = next((choice for choice in choices if choice is not None), None)
    if found is None:
        return Recommendation(None, {}, f"no tried setting fits into {limit_words}: take a smaller model or shorter inputs")
    if found is choices[0] and found.batch >= batch:
        return _of_own_way(found, batch, accumulate, limit_words)
    keys = {**found.way.changes, **_sizes(found, batch, accumulate)}
    own = f"the config as it is does not fit into {limit_words}"
    with_way = "a smaller micro-batch" if found is choices[0] else found.way.name
    return Recommendation(
        found, keys, f"{own}; with {with_way}, {found.batch} samples at a time do, and a step keeps its samples"
    )


def _of_own_way(choice: Choice, batch: int, accumulate: int, limit_words: str) -> Recommendation:
    if choice.batch == batch:
        more = "" if accumulate == 1 else ", and no larger micro-batch of the same step does"
        return Recommendation(choice, {}, f"the config fits into {limit_words} as it is{more}: nothing to set")
    reason = f"{choice.batch} samples at a time fit into {limit_words}: accumulate {choice.accumulate} in place of {accumulate}"
    return Recommendation(choice, _sizes(choice, batch, accumulate), reason)


def _sizes(choice: Choice, batch: int, accumulate: int) -> dict[str, Any]:
    now = {"batch_size": batch, "accumulate": accumulate}
    keys = {"batch_size": choice.batch, "accumulate": choice.accumulate}
    return {key: value for key, value in keys.items() if now[key] != value}
