"""The uncertainty of a metric: the bootstrap's percentile interval over the samples of a split.

The samples' outputs are resampled with replacement and the task's own metrics computed over them, so that it works for any
metric (Efron and Tibshirani, 1993, An Introduction to the Bootstrap, chapter 13). Draws are addressed by the run's seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.records.finalization import Intervals
from mltrainer.redaction import shortened
from mltrainer.reproducibility import seeds
from mltrainer.tasks.structures import mapped, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.evaluation import as_numbers

LEAST_RESAMPLES = 100  # percentiles of fewer are unreliable


@dataclass(frozen=True)
class Interval:
    """The settings of intervals.

    Attributes:
        level: The share of resamples between the two ends, such as 0.95.
        resamples: The greatest number of resamples.
        numbers: The greatest count of numbers, in outputs and targets, that all resamples may read together.
        loss: Whether the loss has an interval too.
    """

    level: float
    resamples: int
    numbers: float
    loss: bool = False

    def resamples_of(self, numbers: int) -> int:
        """Return the number of resamples of `numbers` each; by count, as a time limit would give other intervals under load."""
        return min(self.resamples, int(self.numbers // max(1, numbers)))


def no_intervals(asked: Interval, reason: str) -> Intervals:
    """Return a result without intervals, with the reason."""
    return Intervals(level=asked.level, resamples=0, bounds={}, reason=reason)


def intervals(task: Task, outputs: Any, targets: Any, samples: int, seed: int, asked: Interval) -> Intervals:
    """Return the interval of every metric over the samples of a split.

    Args:
        task: The task, with its metrics, and its loss if `asked.loss`.
        outputs: The outputs of the whole split, one row per sample.
        targets: The targets of the whole split, one row per sample.
        samples: The split's number of samples.
        seed: The run's seed.
        asked: The settings of the intervals.
    """
    rows = {len(tensor) if tensor.dim() else 1 for tensor in tensors_in((outputs, targets))}
    if rows != {samples}:
        found = ", ".join(map(str, sorted(rows)))
        return no_intervals(asked, f"the outputs have {found} rows for {samples} samples, so samples cannot be resampled")
    numbers = sum(tensor.numel() for tensor in tensors_in((outputs, targets)))
    count = asked.resamples_of(numbers)
    if count < min(LEAST_RESAMPLES, asked.resamples):
        why = f"{LEAST_RESAMPLES} resamples of {numbers:,} numbers are more than the {asked.numbers:,.0f} that may be read"
        return no_intervals(asked, why)
    draws = seeds.generator(seed, "bootstrap")
    seeds.seed_everything(seeds.key(seed, "bootstrap"))  # for a metric that draws
    drawn = []
    try:
        for _ in range(count):
            rows_drawn = torch.from_numpy(draws.integers(0, samples, samples))
            drawn.append(_measured(task, _at(outputs, rows_drawn), _at(targets, rows_drawn), asked.loss))
    except Exception as error:  # a user's metrics may refuse a resample, such as one without a class
        return no_intervals(asked, shortened(f"metrics() fails on resampled samples: {type(error).__name__}: {error}", 300))
    names = dict.fromkeys(name for row in drawn for name in row)
    bounds = {name: ends([row.get(name, math.nan) for row in drawn], asked.level) for name in names}
    empty = sorted(name for name, ends in bounds.items() if ends is None)
    reason = f"no spread, or no number, in the resampled samples: {', '.join(empty)}" if empty else None
    known = {name: ends for name, ends in bounds.items() if ends is not None}
    return Intervals(level=asked.level, resamples=count, bounds=known, reason=reason)


def _at(value: Any, rows: Tensor) -> Any:
    return value[rows] if isinstance(value, Tensor) else mapped(lambda tensor: tensor[rows], value)


def _measured(task: Task, outputs: Any, targets: Any, with_loss: bool) -> dict[str, float]:
    loss = {"loss": float(task.loss(outputs, targets))} if with_loss else {}
    return {**loss, **as_numbers(task.metrics(outputs, targets))}


def ends(values: list[float], level: float) -> list[float] | None:
    """Return a metric's two percentiles; None if a value is not finite, or all are equal, which gives no interval."""
    if not np.isfinite(values).all() or min(values) == max(values):
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]
