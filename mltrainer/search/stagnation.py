"""The end of a search whose best trial has stayed the best for long; a function of the trials in their order, of nothing else."""

from __future__ import annotations

from mltrainer.records.job import SearchJob
from mltrainer.records.pareto import feasible
from mltrainer.search.trial import Trial, best_trial


class Stagnation:
    """Counts the trials since the best one.

    Optuna's evaluator of the same name counts those that finished; here those that pruning ended count, too: they were behind.

    Attributes:
        best: The best trial so far that meets the constraints; None before there is one.

    Args:
        job: The search, with the patience after which it ends; None: it does not.
    """

    def __init__(self, job: SearchJob) -> None:
        self._patience, self._constraints, self._mode = job.patience, job.constraints, job.config.metric.mode
        self.best: Trial | None = None
        self._since = 0

    def learn(self, trial: Trial) -> None:
        """Take in an ended trial; trials come in their order."""
        known = self.best
        self.best = best_trial(feasible([*([known] if known else []), trial], self._constraints), self._mode)
        self._since = self._since + (trial.state != "failed") if self.best is known else 0

    @property
    def is_over(self) -> bool:
        """Whether as many trials as the patience in a row were no better; never before there is a best one."""
        return self._patience is not None and self.best is not None and self._since >= self._patience
