"""The best of a run's evaluations: the one rule by which a model is described, kept and delivered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

from mltrainer.configs.project import Metric

Rank = tuple[float, float]
WORST: Rank = (-math.inf, math.inf)  # no tie with it is won


class Ranked(Protocol):
    """Metrics that are ranked, such as a record's `Evaluation`."""

    @property
    def step(self) -> int:
        """The optimizer step after which it was made."""

    @property
    def validation(self) -> Mapping[str, Any]:
        """The metrics of the validation set by name."""


Row = TypeVar("Row", bound=Ranked)


def rank_of(row: Ranked, metric: Metric) -> Rank:
    """Return the rank of a row by its validation metrics."""
    return rank(row.validation, metric)


def rank(metrics: Mapping[str, Any], metric: Metric) -> Rank:
    """Return the chosen metric of an evaluation, and the loss that breaks ties, or nothing. Larger is better.

    A program may report no loss; of its evaluations with equal metrics the first is the best.
    """
    loss = metrics.get("loss") if metric.ties == "loss" else None
    tie = larger_is_better(math.nan if loss is None else loss, "min")
    return larger_is_better(metrics[metric.name], metric.mode), tie


def larger_is_better(value: float | str, mode: str) -> float:
    """Return a number of which larger is better; NaN is the worst value."""
    value = float(value)  # records hold "nan" as text
    if math.isnan(value):
        return -math.inf
    return value if mode == "max" else -value


def best_row(history: Iterable[Row], metric: Metric) -> Row | None:
    """Return the first row of the best rank, or None before the first evaluation.

    Args:
        history: The rows, in the order of their steps.
        metric: The metric with its direction and its tie break.
    """
    return max(history, key=lambda row: rank_of(row, metric), default=None)
