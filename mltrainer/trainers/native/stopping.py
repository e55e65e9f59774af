"""Whether patience is over, and which trials go on: pure functions of the history, so no state can be lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mltrainer.checkpointing.ranking import WORST, Rank, Ranked, larger_is_better, rank_of
from mltrainer.configs.project import Metric, TrainingConfig


class CurvePoint(NamedTuple):
    """An evaluation by the epochs that had been trained: whole at an epoch's end, else a fraction."""

    epoch: float
    step: int
    validation: Mapping[str, Any]


def improves(rank: Rank, best: Rank, min_delta: float) -> bool:
    """Return True if a rank is better by more than `min_delta`, or has the same metric and wins the tie."""
    return rank[0] > best[0] + min_delta or (rank[0] == best[0] and rank[1] > best[1])


def by_epochs_seen(history: Iterable[Ranked], steps_per_epoch: int) -> list[CurvePoint]:
    """Return evaluations by how many epochs had been trained."""
    return [CurvePoint(_whole(round(row.step / steps_per_epoch, 9)), row.step, row.validation) for row in history]


def _whole(epochs: float) -> int | float:
    return int(epochs) if epochs == int(epochs) else epochs


def missed_rung(history: Sequence[CurvePoint], rungs: Iterable[tuple[float, float]], metric: Metric) -> float | None:
    """Return the first rung at which the best so far is worse than it must be to go on, or None.

    Args:
        history: Rows of evaluations, by epochs seen; where none was made at a rung, the next one is judged.
        rungs: Epochs, or fractions of one, each with the value that is good enough.
        metric: Which of two values is better.
    """
    for epoch, least in sorted(rungs):
        best = best_at(history, epoch, metric)
        if best is not None and best < larger_is_better(least, metric.mode):
            return epoch
    return None


def best_at(history: Sequence[CurvePoint], epoch: float, metric: Metric) -> float | None:
    """Return the best validation metric up to a rung, larger being better; None where it was not reached."""
    rows = next((history[: nr + 1] for nr, row in enumerate(history) if row.epoch >= epoch), None)
    return None if rows is None else max(rank_of(row, metric)[0] for row in rows)


def plateaus(history: Iterable[Ranked], metric: Metric, patience: int, min_delta: float) -> int:
    """Return the number of plateaus: `patience` evaluations without improvement; waiting begins anew after each."""
    best, waited, found = WORST, 0, 0
    for row in history:
        rank = rank_of(row, metric)
        waited = 0 if improves(rank, best, min_delta) else waited + 1
        best = rank if waited == 0 else best
        if waited == patience:
            found, waited = found + 1, 0
    return found


def patience_is_over(history: Iterable[Ranked], config: TrainingConfig) -> bool:
    """Return True if the metric has not improved for `patience` evaluations; False without early stopping."""
    if config.early_stopping is None:
        return False
    best, waited = WORST, 0
    for row in history:
        rank = rank_of(row, config.metric)
        if improves(rank, best, config.early_stopping.min_delta):
            best, waited = rank, 0
        else:
            waited += 1
    return waited >= config.early_stopping.patience
