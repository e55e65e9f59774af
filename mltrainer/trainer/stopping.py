"""Which row of the history is the best, and whether patience is over: pure functions, so no state can be lost."""

from __future__ import annotations

import math
from typing import Any

from mltrainer.configs.project import Metric, TrainingConfig


def value_of(row: dict[str, Any], metric: Metric) -> float:
    """Return a row's validation metric as a number of which larger is better; NaN is the worst there is."""
    value = float(row["validation"][metric.name])
    if math.isnan(value):
        return -math.inf
    return value if metric.mode == "max" else -value


def best_row(history: list[dict[str, Any]], metric: Metric) -> dict[str, Any] | None:
    """Return the first row with the best metric, or None before the first evaluation."""
    return max(history, key=lambda row: value_of(row, metric), default=None)


def flat_metrics(row: dict[str, Any] | None) -> dict[str, float]:
    """Return a history row's metrics by name; those of the training set begin with `train_`."""
    if row is None:
        return {}
    return {**row["validation"], **{f"train_{name}": value for name, value in row["train"].items()}}


def plateaus(history: list[dict[str, Any]], metric: Metric, patience: int, min_delta: float) -> int:
    """Return how often the metric has not improved for `patience` evaluations; waiting begins anew each time."""
    best, waited, found = -math.inf, 0, 0
    for row in history:
        value = value_of(row, metric)
        waited = 0 if value > best + min_delta else waited + 1
        best = value if waited == 0 else best
        if waited == patience:
            found, waited = found + 1, 0
    return found


def patience_is_over(history: list[dict[str, Any]], config: TrainingConfig) -> bool:
    """Return whether the metric has not improved for `patience` evaluations."""
    if config.early_stopping is None:
        return False
    best, waited = -math.inf, 0
    for row in history:
        value = value_of(row, config.metric)
        if value > best + config.early_stopping.min_delta:
            best, waited = value, 0
        else:
            waited += 1
    return waited >= config.early_stopping.patience
