"""A search's expected duration, and its trials' share of the project's time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from mltrainer.records.job import SearchJob
from mltrainer.reports.values import duration
from mltrainer.search.halving import expected_share

LEAST_SHARE = 0.5  # of the budget, for the trials: chosen by us, so that an expensive baseline leaves a search, not two trials


@dataclass(frozen=True)
class Budget:
    """A search's time, estimated from the baseline's.

    Attributes:
        trials: The number of planned trials.
        workers: The number of trials at a time.
        trial_s: The expected seconds of one trial, with a run for each fold; None where unknown.
        comparison_s: The expected seconds of the comparison's runs.
        replay_s: The expected seconds of training the best trial once more, in a fresh process.
        minutes: The minutes after which no trial begins; None: all begin.
        start_s: The seconds of a worker's start, before it trains.
    """

    trials: int
    workers: int
    trial_s: float | None
    comparison_s: float
    replay_s: float
    minutes: float | None
    start_s: float

    @classmethod
    def of(cls, job: SearchJob, trials: int, workers: int, start_s: float = 0.0) -> Self:
        """Return the time of a study: the template's `minutes`, or the rest of the project's budget.

        The trials get the project's `budget.minutes` less the baseline's wall time and the comparison's expected time, and at
        least half of it. A job without a trial's expected time has no limit but its own.

        Args:
            job: The study's job.
            trials: The number of planned trials.
            workers: The number of trials at a time.
            start_s: The seconds of a process's start, before it trains; the machine may be busier then.
        """
        run_s, minutes = job.run_s, job.minutes
        whole_s = run_s if job.planned_s is None else job.planned_s
        comparison_s = _wall_s(whole_s or 0.0, 2 * job.seeds, workers)
        trial_s = None if run_s is None else run_s * (job.config.split.folds or 1) * _kept(job, trials)
        if minutes is None and run_s is not None:
            budget = job.config.budget.minutes
            minutes = max(LEAST_SHARE * budget, budget - ((job.baseline_s or 0.0) + comparison_s) / 60)
        return cls(trials, workers, trial_s, comparison_s, start_s + (run_s or 0.0), minutes, start_s)

    @property
    def search_s(self) -> float | None:
        """The expected seconds of all trials, from the start of their workers on; None where unknown."""
        return None if self.trial_s is None else self.start_s + _wall_s(self.trial_s, self.trials, self.workers)

    def forecast(self) -> dict[str, float | None]:
        """Return the expected seconds of the search and of its comparison; the report shows them beside the measured ones."""
        limit = math.inf if self.minutes is None else 60 * self.minutes
        return {
            "search_s": None if self.search_s is None else min(self.search_s, limit),
            "comparison_s": self.comparison_s or None,
        }

    def told(self) -> str | None:
        """Return the estimate in words, and a hint where the search would not fit; None where the time is unknown."""
        if self.trial_s is None or self.search_s is None:
            return None
        ways = f"{self.workers} at a time, " if self.workers > 1 else ""
        words = f"{self.trials} trials of about {duration(self.trial_s)}, {ways}about {duration(self.search_s)}"
        if self.minutes is None or self.search_s <= 60 * self.minutes:
            after_s = self.comparison_s + self.replay_s
            return f"{words}; then about {duration(after_s)} to compare the best with the baseline and to repeat it"
        fitting = max(1, min(self.trials, self.workers * math.ceil((60 * self.minutes - self.start_s) / self.trial_s)))
        return (
            f"{words}; there are {duration(60 * self.minutes)} for them, in which about {fitting} begin: the same as the first "
            f"{fitting} of a longer search. --set minutes={math.ceil(self.search_s / 60)} lets all of them begin"
        )


def _kept(job: SearchJob, trials: int) -> float:
    """Return the mean share of the epochs that trials train; the first trials, without older ones to decide, train all."""
    if job.pruning is None:
        return 1.0
    share = expected_share(job.pruning, job.config.epochs)
    whole = min(trials, job.lag + job.pruning.eta - 1)
    return (whole + (trials - whole) * share) / trials


def _wall_s(run_s: float, runs: int, workers: int) -> float:
    return run_s * math.ceil(runs / workers)
