"""The end of a search whose best trial has stayed the best for long; a function of the trials in their order, of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic

from mltrainer.records.pareto import Trial, best_trial


class Stagnation(Generic[Trial]):
    """Counts the trials since the best one.

    Optuna's evaluator of the same name counts those that finished; here those that pruning ended count, too: they were behind.

    Attributes:
        best: The best trial so far that meets the constraints; None before there is one.

    Args:
        patience: The number of trials in a row without a better one after which the search ends; None: it does not.
        constraints: The criteria that the best trial must meet, by metric.
        mode: The direction of the metric, "max" or "min".
    """

    def __init__(self, patience: int | None, constraints: Mapping[str, str], mode: str) -> None:
        self._patience, self._constraints, self._mode = patience, constraints, mode
        self.best: Trial | None = None
        self._since = 0

    def learn(self, trial: Trial) -> None:
        """Take in an ended trial; trials come in their order."""
        known = self.best
        self.best = best_trial([*([known] if known else []), trial], self._mode, self._constraints)
        self._since = self._since + (trial.state != "failed") if self.best is known else 0

    @property
    def is_over(self) -> bool:
        """Whether as many trials as the patience in a row were no better; never before there is a best one."""
        return self._patience is not None and self.best is not None and self._since >= self._patience


def last_begun(trials: Sequence[Trial], lag: int, counted: Stagnation[Trial]) -> int | None:
    """Return the number of the last trial that a search begins before it stagnates; None if it does not within its trials.

    Args:
        trials: The search's trials in their order.
        lag: The distance from a trial to the last of those that decide whether it begins.
        counted: The count, of no trial yet.
    """
    for nr, trial in enumerate(trials, 1):
        counted.learn(trial)
        if counted.is_over and (last := nr + lag - 1) <= len(trials):
            return last
    return None
