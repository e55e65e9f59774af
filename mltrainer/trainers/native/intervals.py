"""How far a metric may be from its true value: the bootstrap's percentile interval over the samples of a split.

The samples' outputs are drawn anew with replacement and the task's own metrics computed over them, so that it works for any
metric (Efron and Tibshirani, 1993, An Introduction to the Bootstrap, chapter 13). Draws are addressed by the run's seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.records.finalization import Intervals
from mltrainer.redaction import shortened
from mltrainer.reproducibility import seeds
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.structures import mapped, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.evaluation import as_numbers


@dataclass(frozen=True)
class Interval:
    """How intervals are measured.

    Attributes:
        level: The share of resamples between the two ends, such as 0.95.
        resamples: How often the samples are drawn anew.
        seconds: Where all of it would take longer, there are no intervals.
        loss: Whether the loss has an interval too.
        deciding: The metrics that decide; of a built-in task these alone have intervals where all would take longer.
        only: The metrics that have intervals; none named: all.
    """

    level: float
    resamples: int
    seconds: float
    loss: bool = False
    deciding: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


def no_intervals(asked: Interval, reason: str) -> Intervals:
    """Return the result of `intervals` without any, with the reason."""
    return _found(asked, {}, reason)


def _found(asked: Interval, bounds: dict[str, list[float]], reason: str | None) -> Intervals:
    return Intervals(level=asked.level, resamples=asked.resamples, bounds=bounds, reason=reason)


def intervals(task: Task, outputs: Any, targets: Any, samples: int, seed: int, asked: Interval) -> Intervals:
    """Return the interval of every metric over the samples of a split.

    Args:
        task: Whose metrics, and whose loss where that is asked for.
        outputs: Of the whole split, one row per sample.
        targets: Likewise.
        samples: The split's samples.
        seed: The run's.
        asked: How they are measured.
    """
    rows = {len(tensor) if tensor.dim() else 1 for tensor in tensors_in((outputs, targets))}
    if rows != {samples}:
        found = ", ".join(map(str, sorted(rows)))
        return no_intervals(asked, f"the outputs have {found} rows for {samples} samples, so samples cannot be drawn anew")
    draws = seeds.generator(seed, "bootstrap")
    seeds.seed_everything(seeds.key(seed, "bootstrap"))  # for a metric that draws
    try:
        drawn = _drawn(lambda rows: _measured(task, _at(outputs, rows), _at(targets, rows), asked), draws, samples, asked)
    except _TooSlowError as error:
        if not asked.only and asked.deciding and isinstance(task, BuiltinTask):
            return intervals(task, outputs, targets, samples, seed, replace(asked, only=asked.deciding))
        return no_intervals(asked, str(error))
    except Exception as error:  # a user's metrics may refuse a resample, such as one without a class
        return no_intervals(asked, shortened(f"metrics() fails on samples drawn anew: {type(error).__name__}: {error}", 300))
    names = dict.fromkeys(name for row in drawn for name in row)
    bounds = {name: ends([row.get(name, math.nan) for row in drawn], asked.level) for name in names}
    empty = sorted(name for name, ends in bounds.items() if ends is None)
    reason = f"no spread, or no number, in the samples drawn anew: {', '.join(empty)}" if empty else None
    return _found(asked, {name: ends for name, ends in bounds.items() if ends is not None}, reason)


def _at(value: Any, rows: Tensor) -> Any:
    return value[rows] if isinstance(value, Tensor) else mapped(lambda tensor: tensor[rows], value)


class _TooSlowError(Exception):
    """What was measured once takes too long to be measured so often."""


def _measured(task: Task, outputs: Any, targets: Any, asked: Interval) -> dict[str, float]:
    if asked.only and isinstance(task, BuiltinTask):
        return {name: task.metric(name, outputs, targets) for name in asked.only}
    loss = {"loss": float(task.loss(outputs, targets))} if asked.loss else {}
    return {**loss, **as_numbers(task.metrics(outputs, targets))}


def _drawn(
    measured: Callable[[Tensor], dict[str, float]], draws: np.random.Generator, samples: int, asked: Interval
) -> list[dict[str, float]]:
    """Return the metrics of each resample.

    Raises:
        _TooSlowError: The first ones tell that all of them would take too long.
    """
    found: list[dict[str, float]] = []
    began = time.perf_counter()
    for number in range(asked.resamples):
        found.append(measured(torch.from_numpy(draws.integers(0, samples, samples))))
        whole = (time.perf_counter() - began) / (number + 1) * asked.resamples
        if number < 3 and whole > asked.seconds:
            raise _TooSlowError(f"{asked.resamples} resamples would take {whole:.0f} s, longer than {asked.seconds:g} s")
    return found


def ends(values: list[float], level: float) -> list[float] | None:
    """Return a metric's two percentiles; None where a value is no number, or all are the same, which tells nothing."""
    if not np.isfinite(values).all() or min(values) == max(values):
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return [float(low), float(high)]
