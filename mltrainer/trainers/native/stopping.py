"""Early stopping and pruning of trials: pure functions of the history, so that no state can be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mltrainer.checkpointing.ranking import WORST, Rank, Ranked, Row, larger_is_better, rank_of
from mltrainer.configs.project import Metric, TrainingConfig


def improves(rank: Rank, best: Rank, min_delta: float) -> bool:
    """Return True if a rank is better by more than `min_delta`, or has the same metric and wins the tie."""
    return rank[0] > best[0] + min_delta or (rank[0] == best[0] and rank[1] > best[1])


def epochs_seen(row: Ranked, steps_per_epoch: int) -> int | float:
    """Return the number of epochs trained before an evaluation: an integer at an epoch's end, else a fraction."""
    epochs = round(row.step / steps_per_epoch, 9)
    return int(epochs) if epochs == int(epochs) else epochs


def missed_rung(
    history: Sequence[Row], rungs: Iterable[tuple[float, float]], metric: Metric, epochs_at: Callable[[Row], float]
) -> float | None:
    """Return the first rung at which the best so far is worse than it must be to go on, or None.

    Args:
        history: The evaluations; without one exactly at a rung, the next one counts.
        rungs: Epochs, or fractions of one, each with the value that is good enough.
        metric: The metric, which decides the better of two values.
        epochs_at: A function that returns the number of epochs trained before an evaluation.
    """
    for epoch, least in sorted(rungs):
        best = best_at(history, epoch, metric, epochs_at)
        if best is not None and best < larger_is_better(least, metric.mode):
            return epoch
    return None


def best_at(history: Sequence[Row], epoch: float, metric: Metric, epochs_at: Callable[[Row], float]) -> float | None:
    """Return the best validation metric up to a rung, as a number where larger is better; None if the rung was not reached."""
    rows = next((history[: nr + 1] for nr, row in enumerate(history) if epochs_at(row) >= epoch), None)
    return None if rows is None else max(rank_of(row, metric)[0] for row in rows)


def plateaus(history: Iterable[Ranked], metric: Metric, patience: int, min_delta: float) -> int:
    """Return the number of plateaus: `patience` evaluations without improvement; counting restarts after each."""
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
