"""A study: trials in worker processes, the best of them, and its comparison with the baseline over fresh seeds.

Trial n is a function of the study's seed, of n, and of the trials up to n - `lag`, which have all ended when it begins. So the
table of trials does not depend on how many workers there are, how fast they are, or when anything was killed. What a trial
gave lies in its run's folder: a study that goes on reads it there, and trains nothing twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mltrainer.configs.project import Metric, TrainingConfig, config_digest
from mltrainer.errors import InputError, MachineError, StoppedError
from mltrainer.records.job import Searching
from mltrainer.reproducibility import seeds
from mltrainer.reproducibility.witnesses import has_ended, set_aside, sound_result
from mltrainer.tools.program import Events, StopSignals
from mltrainer.tools.search import halving
from mltrainer.tools.search.journal import Journal
from mltrainer.tools.search.pool import Ended, Pool, places
from mltrainer.tools.search.space import Values, reseeded, trial_config
from mltrainer.tools.search.suggest import strategy
from mltrainer.workspace import digest, plain, read_json, write_json

Row = dict[str, Any]
NO_COMPARISON: Row = {"seeds": [], "baseline": [], "candidate": []}
STATE_FILE = "state.json"
DEATHS = 3  # chosen by us: a worker that dies so often on a trial, which came no further meanwhile, dies of the trial
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}
RECORDED = (*("nr", "run", "values", "seed", "state", "value", "reason", "steps", "wall_s"), "curve", "pruned_at", "attempts")


def work(job: dict[str, Any], events: Events) -> int:
    """Run a study: trials, the best of them, and its comparison with the baseline at equal budget.

    Args:
        job: As `records.job.Searching`.
        events: Where progress goes.

    Raises:
        InputError: A trial's config is not valid, and then none is run; or not one of them could be trained.
        StoppedError: A signal stopped it; finished trials are kept and not run again.
    """
    stop = StopSignals(events)
    job = Searching.model_validate(job).model_dump(by_alias=True)
    config = job["config"]
    with Pool(job, places(job["workers"], config["device"], job["threads"]), 60 * job["silent_minutes"]) as pool:
        runs = Runs(job, pool, events, stop)
        study = Study(job, runs, events)
        trials = study.search()
        about = study.about()
        best = best_trial(trials, config["metric"]["mode"])
        comparison = compare(runs, job, best["values"]) if best else NO_COMPARISON
    told = [{key: trial[key] for key in RECORDED} for trial in trials]
    found = {"trials": told, "best": best and best["nr"], "comparison": comparison, **about}
    write_json(runs.folder / "result.json", found)
    return 0


def best_trial(trials: Iterable[Row], mode: str) -> Row | None:
    """Return the finished trial with the best value, the earlier of equals; one that ended early is never the best."""
    sign = 1 if mode == "max" else -1
    finished = [trial for trial in trials if trial["state"] == "finished"]
    return max(finished, key=lambda trial: (sign * trial["value"], -trial["nr"]), default=None)


def outcome(result: Row, metric: Metric) -> Row:
    """Return a run that went to its end as a study sees it.

    Returns:
        `state`: "finished" or "failed"; `value`: the metric, NaN for a run that failed; `reason`: why it failed, or None.
    """
    value, nonfinite, reason = plain(result["metrics"].get(metric.name)), result.get("nonfinite"), result.get("reason")
    if nonfinite:
        reason = f"the {nonfinite['what']} was not finite at step {nonfinite['step']}"
    elif reason is None and not isinstance(value, int | float):
        reason = f"{metric.name} is {value}"
    return (
        {"state": "failed", "value": math.nan, "reason": reason}
        if reason
        else {"state": "finished", "value": value, "reason": None}
    )


# --- runs -----------------------------------------------------------------------------------------


class Runs:
    """Runs by the contract that names them: found, gone on with, or trained now by a worker.

    Args:
        job: The study's.
        pool: Where they are trained.
        events: Where progress goes.
        stop: Tells of a signal.
    """

    def __init__(self, job: dict[str, Any], pool: Pool, events: Events, stop: Callable[[], str | None]) -> None:
        self.job, self.pool, self.events, self.root = job, pool, events, Path.cwd()
        self.folder = self.root / job["folder"]
        self._stop = stop
        self._begun: dict[int, Row] = {}  # the jobs of those that are being trained
        self._twins: list[tuple[int, TrainingConfig, halving.Rungs]] = []  # those that another number trains
        kept = self._kept()
        self._deaths: dict[str, list[str]] = kept.get("deaths", {})
        self._earlier = float(kept.get("seconds", 0.0))
        self._started = time.monotonic()

    def _kept(self) -> Row:
        try:
            return dict(read_json(self.folder / STATE_FILE))
        except (InputError, TypeError, ValueError):
            return {}

    @property
    def seconds(self) -> float:
        """How long this process and those before it have worked on the study."""
        return self._earlier + time.monotonic() - self._started

    def keep(self) -> None:
        """Note what a process that goes on with the study must know beside the runs."""
        write_json(self.folder / STATE_FILE, {"deaths": self._deaths, "seconds": self.seconds})

    def known(self, config: TrainingConfig, limits: halving.Rungs) -> Row | None:
        """Return the result of a run that need not be trained: it has ended, or came as far as its rungs let it."""
        contract = self._contract(config)
        result = sound_result(self.root / _folder(contract), contract)
        if result is None:
            return None
        is_cut = halving.cut(result["history"], limits, config.metric)[1] is not None
        return result if is_cut or result["state"] in ("finished", "failed") else None

    def begin(self, nr: int, config: TrainingConfig, limits: halving.Rungs) -> None:
        """Give a run to a worker; one that a worker is training already is looked at when that has ended."""
        contract = self._contract(config)
        folder = self.root / _folder(contract)
        if self._is_training(folder.name):
            self._twins.append((nr, config, limits))
            return
        if has_ended(folder):
            kept = set_aside(folder).name
            self.events.send("note", text=f"run {folder.name} is not what it was: kept as {kept}, and trained again")
        job = {
            "schema": 1,
            "run": folder.name,
            "phase": "optimization",
            "purpose": "train",
            "folder": _folder(contract),
            "config": config.model_dump(),
            "contract": contract,
            "threads": config.threads,
            **({"rungs": limits} if limits else {}),
            **{key: self.job[key] for key in ("gate", "code_files", "parent")},
        }
        write_json(folder / "job.json", job)
        self._begun[nr] = job
        self.pool.begin(nr, folder / "job.json")

    def wait(self) -> list[tuple[int, Row]]:
        """Return the numbers and results of runs that have ended; those whose worker died are begun again.

        Raises:
            StoppedError: A signal stopped the study.
        """
        if (cause := self._stop()) is not None:
            self.pool.stop(15)
            mend = "type the same command again to go on"
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], mend=mend)
        found = [(ended.nr, self._result(ended)) for ended in self.pool.wait()]
        return [(nr, result) for nr, result in found if result is not None] + self._ended_twins()

    def _is_training(self, run: str) -> bool:
        return any(job["run"] == run for job in self._begun.values())

    def _ended_twins(self) -> list[tuple[int, Row]]:
        """Return the results of runs that another number has trained meanwhile, and begin those that must go on."""
        twins, self._twins, found = self._twins, [], []
        for nr, config, limits in twins:
            result = None if self._is_training(_run(self._contract(config))) else self.known(config, limits)
            if result is not None:
                found.append((nr, result))
            else:
                self.begin(nr, config, limits)
        return found

    def all(self, configs: Sequence[TrainingConfig]) -> list[Row]:
        """Return the results of some runs, trained as many at a time as there are workers."""
        results = {nr: found for nr, config in enumerate(configs) if (found := self.known(config, [])) is not None}
        waiting = [nr for nr in range(len(configs)) if nr not in results]
        while len(results) < len(configs):
            while waiting and self.pool.room:
                nr = waiting.pop(0)
                self.begin(nr, configs[nr], [])
            results.update(self.wait())
        return [results[nr] for nr in range(len(configs))]

    def attempts(self, run: str) -> int:
        """Return how many processes have tried a run that was trained here."""
        return 1 + len(self._deaths.get(run, []))

    def _contract(self, config: TrainingConfig) -> dict[str, str]:
        return {**self.job["contract"], "config_sha256": config_digest(config)}

    def _result(self, ended: Ended) -> Row | None:
        """Return the result of a run that has ended; None where it was begun again."""
        job = self._begun.pop(ended.nr)
        if ended.reason is not None:
            return failed(job["run"], ended.reason)
        if ended.death is not None:
            return self._again(ended.nr, job, ended.death)
        result = sound_result(self.root / job["folder"], job["contract"])
        if result is None:
            raise MachineError("the result is not what its worker wrote", where=job["folder"], mend="type the same command again")
        return result

    def _again(self, nr: int, job: Row, death: str) -> Row | None:
        """Begin a run again whose worker died, unless workers die of it."""
        at = max((path.name for path in (self.root / job["folder"] / "checkpoints").glob("step-*")), default="its beginning")
        deaths = self._deaths.setdefault(job["run"], [])
        deaths.append(at)
        self.keep()
        self.events.send("note", text=f"  run {job['run']}: {death}, at {at}")
        if deaths[-DEATHS:].count(at) == DEATHS:
            return failed(job["run"], f"{death}, {len(deaths)} times")
        self._begun[nr] = job
        self.pool.begin(nr, self.root / job["folder"] / "job.json")
        return None


def _run(contract: dict[str, str]) -> str:
    return digest(contract)[:12]


def _folder(contract: dict[str, str]) -> str:
    return f".mltrainer/runs/{_run(contract)}"


def failed(run: str, reason: str) -> Row:
    """Return what stands for the result of a run that could not be trained."""
    return {"id": run, "state": "failed", "metrics": {}, "history": [], "steps": 0, "wall_s": None, "reason": reason}


# --- trials ---------------------------------------------------------------------------------------


class Study:
    """The trials of one study, in order.

    Args:
        job: As for `work`.
        runs: Where they are trained.
        events: Where progress goes.
    """

    def __init__(self, job: dict[str, Any], runs: Runs, events: Events) -> None:
        self.job, self.runs, self.events = job, runs, events
        self.metric = Metric.model_validate(job["config"]["metric"])
        self._strategy = strategy(job["strategy"], job["space"], job["config"], job["trials"])
        self._planned = self._strategy.trials
        self._begun: dict[int, Row] = {}
        self._rows: dict[int, Row] = {}
        self._learned = 0
        self._started = time.monotonic()
        self._journal = Journal(runs.folder, job["run"], job["space"], self.metric)

    def search(self) -> list[Row]:
        """Return every trial, found or run now.

        Raises:
            InputError: A trial's config is not valid, where all are known before the first; or none could be trained.
            StoppedError: A signal stopped it.
        """
        if not self._strategy.learns:
            for nr in range(1, self._planned + 1):
                trial_config(self.job["config"], self._strategy.values(nr), f"trial {nr}")
        number = 1
        while len(self._rows) < self._planned:
            while number <= self._planned and self._is_due(number):
                self._begin(number)
                number += 1
            if self._is_late():
                self._planned = number - 1
            if self.runs.pool.busy:
                for nr, result in self.runs.wait():
                    self._end(nr, result)
                    self.runs.keep()
        trials = [self._rows[nr] for nr in range(1, self._planned + 1)]
        if not any(trial["steps"] for trial in trials):
            mend = "mend it, then type the same command again"
            raise InputError(f"no trial could be trained; trial 1: {trials[0]['reason']}", mend=mend)
        return trials

    def about(self) -> Row:
        """Return what the study says of itself."""
        config = TrainingConfig.model_validate(self.job["config"])
        return {
            "planned": self._planned,
            "ended": "trials" if self._planned == self._strategy.trials else "time",
            "lag": self.job["lag"] if self._looks_back else 0,
            "rungs": halving.rungs_of(self.job["pruning"], config.epochs),
            "search_s": self.runs.seconds,
        }

    @property
    def _looks_back(self) -> bool:
        """Whether anything is decided by older trials."""
        return self._strategy.learns or self.job["pruning"] is not None

    def _is_late(self) -> bool:
        minutes = self.job["minutes"]
        return minutes is not None and len(self._begun) > 0 and self.runs.seconds > 60 * minutes

    def _is_due(self, number: int) -> bool:
        """Return whether a trial can begin: there is room, time, and the trials that decide it have ended."""
        if not self.runs.pool.room or self._is_late():
            return False
        return not self._looks_back or all(nr in self._rows for nr in range(1, number - self.job["lag"] + 1))

    def _begin(self, number: int) -> None:
        """Choose a trial's values, and run it unless its result is there."""
        older = [self._rows[nr] for nr in range(1, number - self.job["lag"] + 1)] if self._looks_back else []
        for row in older[self._learned :]:
            self._strategy.learn(row)
        self._learned = len(older)
        values = self._strategy.values(number)
        self.events.send("trial", nr=number, trials=self._planned, values=values)
        trial: Row = {"nr": number, "values": values, "seed": self.job["config"]["seed"], "own": [], "limits": []}
        self._begun[number] = trial
        try:
            config = trial_config(self.job["config"], values, f"trial {number}")
        except InputError as error:
            self._end(number, failed("", str(error)))
            return
        trial["own"] = halving.own_rungs(self.job["pruning"], config.epochs, trial["seed"], number)
        trial["limits"] = halving.limits(self.job["pruning"], trial["own"], older, self.metric)
        known = self.runs.known(config, trial["limits"])
        if known is not None:
            self._end(number, known)
        else:
            self.runs.begin(number, config, trial["limits"])

    def _end(self, number: int, result: Row) -> None:
        trial = self._begun[number]
        history, rung = halving.cut(result["history"], trial["limits"], self.metric)
        if rung is None:
            found = outcome(result, self.metric)
        else:
            found = {"state": "pruned", "value": halving.best_of(history, self.metric), "reason": None}
        self._rows[number] = {
            **trial,
            **found,
            "run": result["id"],
            "history": history,
            "pruned_at": rung,
            "curve": [[row["epoch"], plain(row["validation"][self.metric.name])] for row in history],
            "steps": history[-1]["step"] if rung is not None else result["steps"],
            "wall_s": result["wall_s"],
            "attempts": self.runs.attempts(result["id"]),
        }
        self.events.send("note", text=f"  {self._told(number)}")
        while (row := self._rows.get(self._journal.added + 1)) is not None:
            self._journal.add(row)

    def _told(self, number: int) -> str:
        """Return a trial's end in a line, with the best so far and the time that is left."""
        done, row = len(self._rows), self._rows[number]
        spent = time.monotonic() - self._started
        best = best_trial(self._rows.values(), self.metric.mode)
        so_far = f"; best {best['value']:.4g} of trial {best['nr']}" if best else ""
        left = spent / done * (self._planned - done)
        return f"trial {number}: {told(row, self.metric)}{so_far}; {done} of {self._planned}, {_duration(left)} left"


def told(found: Row, metric: Metric) -> str:
    """Return how a run ended, in some words."""
    if found["state"] == "pruned":
        return f"{metric.name} {found['value']:.4g}, ended at epoch {found['pruned_at']}"
    return f"failed: {found['reason']}" if found["reason"] else f"{metric.name} {found['value']:.4g}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


# --- the comparison -------------------------------------------------------------------------------


def compare(runs: Runs, job: Row, values: Values) -> Row:
    """Train the baseline and the candidate on the same fresh seeds; a run that failed has the value "nan"."""
    config, metric = job["config"], Metric.model_validate(job["config"]["metric"])
    fresh = [seeds.key(config["seed"], "comparison", number) % 2**32 for number in range(job["seeds"])]
    sides = {"baseline": trial_config(config, {}), "candidate": trial_config(config, values)}
    runs.events.send("note", text=f"baseline and candidate on {len(fresh)} fresh seeds")
    results = runs.all([reseeded(side, seed) for side in sides.values() for seed in fresh])
    found = [outcome(result, metric) for result in results]
    for nr, one in enumerate(found):
        name, seed = [*sides][nr // len(fresh)], fresh[nr % len(fresh)]
        runs.events.send("note", text=f"  {name}, seed {seed}: {told(one, metric)}")
    scores = [one["value"] for one in found]
    return {"seeds": fresh, "baseline": scores[: len(fresh)], "candidate": scores[len(fresh) :]}
