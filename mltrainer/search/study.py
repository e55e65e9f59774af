"""The trials of a study: chosen one after the other, trained several at a time.

Trial n is a function of the study's seed, of n, and of the trials up to n - `lag`, which have all ended when it begins. So the
table of trials depends neither on the number of workers nor on their pace, nor on when anything was killed. A trial's result
is in its run's folder: a study that goes on reads it there, and trains nothing twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mltrainer.configs.project import Metric, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.job import SearchJob
from mltrainer.records.pareto import best_trial
from mltrainer.records.stagnation import Stagnation
from mltrainer.reports.values import time_left
from mltrainer.search import halving
from mltrainer.search.budget import Budget
from mltrainer.search.journal import Journal
from mltrainer.search.runs import Runs
from mltrainer.search.sharing import SharedStudy
from mltrainer.search.space import trial_config
from mltrainer.search.suggest import strategy
from mltrainer.search.trial import Ended, FoldOutcome, Outcome, Rungs, Suggested, Trained, Trial
from mltrainer.tools.program import Events
from mltrainer.workspace import plain


@dataclass(frozen=True)
class StudySummary:
    """A study's summary beside its trials, as optimization's record has it.

    Attributes:
        planned: The number of planned trials.
        ended: The reason of its end: `trials`, `time` or `stagnation`.
        lag: The distance in trials: trial n is suggested from the trials up to n - `lag`; 0 where none decides.
        rungs: The epochs at which trials are stopped.
        search_s: The search's time in seconds.
        minutes: The minutes after which no trial begins; None: all begin.
        forecast: The expected times in seconds, by name.
    """

    planned: int
    ended: Literal["trials", "time", "stagnation"]
    lag: int
    rungs: list[float]
    search_s: float
    minutes: float | None
    forecast: dict[str, float | None]


class Study:
    """The trials of one study, in order.

    Args:
        job: The study's job.
        runs: The study's runs, which train the trials.
        events: The sender to which progress is reported.
        shared: The division of the trials among machines.
    """

    def __init__(self, job: SearchJob, runs: Runs, events: Events, shared: SharedStudy) -> None:
        self.job, self.runs, self.events, self._shared = job, runs, events, shared
        self.metric = job.config.metric
        self._config = job.config.model_dump()  # the space names keys of it
        self._strategy = strategy(job.strategy, job.space, self._config, job.trials, job.objectives, job.constraints)
        self._planned = self._strategy.trials
        self._begun: dict[int, Suggested] = {}
        self._folds = job.config.folds
        self._chosen: dict[int, Suggested] = {}
        self._configs: dict[int, TrainingConfig] = {}
        self._results: dict[int, dict[int, Trained]] = {}  # a trial's results, by fold
        self._waiting: list[tuple[int, TrainingConfig, Rungs]] = []  # folds without a worker yet
        self._before = runs.furthest
        self._open: set[int] = set()  # begun, so far by another machine
        self._trials: dict[int, Trial] = {}
        self._best: Trial | None = None
        self._ladder = halving.Ladder(job.pruning, self.metric)
        self._stagnation = Stagnation[Trial](job.patience, job.constraints, job.config.metric.mode)
        self._ended: Literal["trials", "time", "stagnation"] = "trials"
        self._learned = self._found = 0
        self._started = time.monotonic()
        start_s = time.process_time()  # of this process, which imports the same modules as a worker
        self._budget = Budget.of(job, self._planned, runs.pool.room, start_s)
        self._journal = Journal(runs.folder, job.run, job.space, self.metric)

    def search(self) -> list[Trial]:
        """Return every trial, found or trained now.

        Raises:
            InputError: A trial's config is not valid, where all are known before the first; or no trial could be trained.
            StoppedError: A signal stopped the search.
        """
        self._require_valid_trials()
        if (told := self._budget.told()) is not None:
            self.events.send("note", text=told)
        self._show()
        number = 1
        while len(self._trials) < self._planned:
            # Folds of trials under way come before new trials, which may wait for their results.
            while self._waiting and self.runs.pool.room:
                self._train(*self._waiting.pop(0))
            self._shared.look()
            for nr in sorted(self._open):
                self._take_up(nr)
            number = self._begin_due(number)
            if number <= self._planned and self._is_decided(number):
                self._choose(number)  # while the workers train: the next idle one then waits for nothing
            if self.runs.pool.busy or self._open:
                for nr, result in self.runs.wait():
                    self._end(nr, result)
                self.runs.keep(every_s=1.0)
        self._shared.end()
        trials = [self._trials[nr] for nr in range(1, self._planned + 1)]
        if not any(trial.steps or trial.state == "finished" for trial in trials):  # a program's steps may not be seen
            hint = "fix it, then type the same command again"
            raise InputError(f"no trial could be trained; trial 1: {trials[0].reason}", hint=hint)
        return trials

    def _require_valid_trials(self) -> None:
        """Refuse a study with an invalid config of a trial, where all are known before the first.

        Raises:
            InputError: A trial's config is not valid; the message names its number.
        """
        if not self._strategy.learns:
            for nr in range(1, self._planned + 1):
                trial_config(self._config, self._strategy.values(nr), f"trial {nr}")

    def _begin_due(self, number: int) -> int:
        """Begin the trials that can begin, from a number on, and return the next number; none begins where the search is over."""
        while number <= self._planned and self._is_due(number):
            if self._stagnates(number):
                self._planned, self._ended = number - 1, "stagnation"
            elif self._shared.is_over(number, self._is_late(number)):
                self._planned, self._ended = number - 1, "time"
            else:
                self._begin(number)
                number += 1
        return number

    def _stagnates(self, number: int) -> bool:
        """Return True where the trials that decide about a trial say that it is not worth its time."""
        if self._looks_back:
            self._learn(number - self.job.lag)
        if (best := self._stagnation.best) is None or not self._stagnation.is_over:
            return False
        text = f"no trial begins after {number - 1}: trial {best.nr} was the best for {self.job.patience} further ones"
        self.events.send("note", text=text)
        return True

    def about(self) -> StudySummary:
        """Return the study's summary."""
        return StudySummary(
            planned=self._planned,
            ended=self._ended,
            lag=self.job.lag if self._looks_back else 0,
            rungs=halving.rungs_of(self.job.pruning, self.job.config.epochs),
            search_s=self.runs.seconds,
            minutes=self._budget.minutes,
            forecast=self._budget.forecast(),
        )

    @property
    def _looks_back(self) -> bool:
        """Whether older trials decide anything about a trial."""
        return self._strategy.learns or self.job.pruning is not None or self.job.patience is not None

    def _is_late(self, number: int) -> bool:
        """Return True where the time is over for a trial that was not begun before; never for the first trial."""
        minutes = self._budget.minutes
        return minutes is not None and number > max(1, self._before) and self.runs.seconds > 60 * minutes

    def _is_due(self, number: int) -> bool:
        """Return True where a trial can begin: there is room, and the trials that decide it have ended."""
        return self.runs.pool.room > 0 and self._is_decided(number)

    def _is_decided(self, number: int) -> bool:
        return not self._looks_back or number - self.job.lag <= self._journal.added

    def _begin(self, number: int) -> None:
        """Begin a trial; it is trained unless its result is there."""
        trial = self._choose(number)
        self.events.send("trial", nr=number, trials=self._planned, values=trial.values)
        self._begun[number] = trial
        self.runs.begins(number)
        if trial.fault is not None:
            self._close(number, [Trained("", reason=trial.fault)])
            return
        self._open.add(number)
        self._take_up(number)

    def _choose(self, number: int) -> Suggested:
        """Return a trial's suggestion; each trial is chosen once, in turn."""
        if number in self._chosen:
            return self._chosen[number]
        if self._looks_back:
            self._learn(number - self.job.lag)
        values = self._strategy.values(number)
        trial = Suggested(number, values, self.job.config.seed)
        try:
            self._configs[number] = config = trial_config(self._config, values, f"trial {number}")
            rungs = halving.own_rungs(self.job.pruning, config.epochs, trial.seed, number)
            trial = replace(trial, rungs=rungs, limits=self._ladder.limits(rungs))
            self.runs.contract(config)
        except InputError as error:
            trial = replace(trial, fault=str(error))
        self._chosen[number] = trial
        return trial

    def _learn(self, last: int) -> None:
        """Let the strategy and the rungs learn the trials up to a number."""
        for nr in range(self._learned + 1, last + 1):
            self._strategy.learn(self._trials[nr])
            self._ladder.learn(self._trials[nr])
            self._stagnation.learn(self._trials[nr])
            self._shorten(nr)
        self._learned = max(self._learned, last)

    def _shorten(self, number: int) -> None:
        """Drop a trial's evaluations, which are no longer needed: its curve has the metric of each."""
        self._trials[number] = replace(self._trials[number], history=[])

    def _take_up(self, number: int) -> None:
        """Take a trial's result from another machine or an earlier process; else train it, unless another machine does."""
        config, trial = self._configs[number], self._begun[number]
        row = self._shared.row(number)
        # A result here needs no claim: nothing of it is left to train.
        is_here = row is None and len(self._folds) == 1 and self.runs.known(config, trial.limits) is not None
        if row is None and not is_here and not (self.runs.pool.room and self._shared.claim(number, trial.values)):
            return
        self._open.discard(number)
        if row is not None:
            self._enter(number, row)
        else:
            self._train(self._key(number, 0), config, trial.limits)

    def _key(self, number: int, place: int) -> int:
        """Return the number under which a worker trains one of a trial's folds; without folds the trial's number."""
        return number * len(self._folds) + place

    def _train(self, key: int, config: TrainingConfig, limits: Rungs) -> None:
        """Take a run's result where it exists; else have the run trained, once there is a worker for it."""
        known = self.runs.known(config, limits)
        if known is not None:
            self._found += key % len(self._folds) == 0
            self._end(key, known)
        elif self.runs.pool.room:
            self.runs.begin(key, config, limits)
        else:
            self._waiting.append((key, config, limits))

    def _end(self, key: int, result: Trained) -> None:
        """Take the result of a trial's run; the other folds are trained once the first one's result lets the trial go on."""
        number, place = divmod(key, len(self._folds))
        results = self._results.setdefault(number, {})
        results[place] = result
        if place == 0 and not self._goes_on(number, result):
            self._close(number, [result])
        elif len(results) == len(self._folds):
            self._close(number, [results[nr] for nr in sorted(results)])
        elif place == 0:
            for nr, fold in enumerate(self._folds[1:], start=1):
                self._train(self._key(number, nr), self._configs[number].on_fold(fold), [])

    def _goes_on(self, number: int, first: Trained) -> bool:
        is_cut = halving.cut(first.history, self._begun[number].limits, self.metric)[1] is not None
        return not is_cut and outcome(first, self.metric).state == "finished"

    def _close(self, number: int, results: list[Trained]) -> None:
        """Make a trial's row of its runs: one for each fold, or the first alone where that ended the trial."""
        trial, first = self._begun[number], results[0]
        history, rung = halving.cut(first.history, trial.limits, self.metric)
        if rung is None:
            found = over_folds(results, self._folds, self.metric)
            asked = {**self.job.objectives, **self.job.constraints}
            further = further_metrics(results, asked) if found.state == "finished" else {}
        else:
            found, further = Outcome("pruned", halving.best_of(history, self.metric)), {}
        ended = Ended(
            **vars(found),
            run=first.id,
            history=history,
            pruned_at=rung,
            curve=[[row.epoch, plain(row.validation[self.metric.name])] for row in history],
            steps=history[-1].step if rung is not None else sum(result.steps for result in results),
            wall_s=None if first.wall_s is None else math.fsum(result.wall_s or 0.0 for result in results),
            attempts=max(self.runs.attempts(result.id) for result in results),
            objectives=further,
        )
        self._enter(number, self._shared.report(number, trial.values, ended))

    def _enter(self, number: int, ended: Ended) -> None:
        """Put a trial's end into the table."""
        trial = self._trials[number] = Trial.of(self._begun[number], ended)
        self._best = best_trial([*filter(None, [self._best]), trial], self.metric.mode, self.job.constraints)
        self._forget(number)
        self.events.send("note", text=f"  {self._told(number)}")
        self._show()
        while (following := self._trials.get(self._journal.added + 1)) is not None:
            self._journal.add(following)
            if not self._looks_back:
                self._shorten(following.nr)

    def _forget(self, number: int) -> None:
        """Drop the data that a trial needed until it ended: for thousands of trials, it takes most of the memory."""
        del self._chosen[number], self._begun[number]
        self._results.pop(number, None)
        self._configs.pop(number, None)

    def _told(self, number: int) -> str:
        """Return a line on a trial's end, with the best trial so far and the time left."""
        done, left = len(self._trials), self._left_s()
        best = self._best
        so_far = f"; best {best.value:.4g} of trial {best.nr}" if best else ""
        rest = f", {time_left(left)}" if left is not None else ""
        return f"trial {number}: {self._trials[number].told(self.metric.name)}{so_far}; {done} of {self._planned}{rest}"

    def _left_s(self) -> float | None:
        """Return the expected seconds of the remaining trials, by those that ended now, or the baseline; None where unknown.

        Trials in training count half.
        """
        ended, under_way = len(self._trials) - self._found, len(self._begun) / 2
        spent, minutes = time.monotonic() - self._started, self._budget.minutes
        left = self._planned - len(self._trials) - under_way
        whole = spent / (ended + under_way) * left if ended else self._budget.search_s
        return whole if whole is None or minutes is None else min(whole, max(0.0, 60 * minutes - self.runs.seconds))

    def _show(self) -> None:
        """Report the study's progress."""
        best = self._best
        shown = {"nr": best.nr, "value": best.value, "values": best.values} if best else None
        values = {"metric": self.metric.name, "best": shown}
        self.runs.live.at("trials", len(self._trials), self._planned, self._left_s(), len(self._folds), **values)


# --- the outcomes of trials ---------------------------------------------------------------------


def outcome(run: Trained, metric: Metric) -> Outcome:
    """Return the outcome of a run that went to its end."""
    value, nonfinite, reason = plain(run.metrics.get(metric.name)), run.result and run.result.nonfinite, run.reason
    if nonfinite:
        reason = f"the {nonfinite.what} was not finite at step {nonfinite.step}"
    elif reason is None and not isinstance(value, int | float):
        reason = f"{metric.name} is {value}"
    return Outcome("failed", math.nan, reason) if reason else Outcome("finished", value)


def over_folds(results: Sequence[Trained], folds: Sequence[int], metric: Metric) -> Outcome:
    """Return the outcome of the runs of a trial: the mean over the folds, or the reason of one's failure.

    Args:
        results: The result of each fold; a single one without folds, and of a trial whose first fold failed.
        folds: The fold of each result.
        metric: The objective.
    """
    found = [outcome(result, metric) for result in results]
    if len(folds) == 1:
        return found[0]
    rows = [FoldOutcome(fold, run.id, one.value) for fold, run, one in zip(folds, results, found, strict=False)]
    failed = next((f"fold {fold}: {one.reason}" for fold, one in zip(folds, found, strict=False) if one.reason), None)
    if failed is not None:
        return Outcome("failed", math.nan, failed, rows)
    return Outcome("finished", math.fsum(one.value for one in found) / len(found), folds=rows)


def further_metrics(results: Sequence[Trained], names: Iterable[str]) -> dict[str, Any]:
    """Return further metrics of a trial's runs, means over the folds; "nan" where one was not measured."""
    columns = {name: [float(result.metrics.get(name, math.nan)) for result in results] for name in names}
    return {name: plain(math.fsum(values) / len(values)) for name, values in columns.items()}
