"""The runs of a study, by the contract that names them: found, resumed, or trained now by a worker."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mltrainer import plugins
from mltrainer.configs.pages import ORCHESTRATOR
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.configs.strategies import Distillation
from mltrainer.errors import InputError, MachineError, StoppedError
from mltrainer.follow.live import LIVE_FILE
from mltrainer.records.event import Running
from mltrainer.records.job import PooledJob, TrainingJob
from mltrainer.records.run import Evaluation, RunResult
from mltrainer.reproducibility.evidence import has_ended, set_aside, sound_result
from mltrainer.reproducibility.packs import packed, restore
from mltrainer.search import halving
from mltrainer.search.attempts import furthest
from mltrainer.search.pool import Pool, places
from mltrainer.search.remote_pool import RemotePool
from mltrainer.search.trial import Rungs, Trained
from mltrainer.search.workers import RunEnd, Workers
from mltrainer.tools.program import EXIT_CODES, Events
from mltrainer.trainers.native.stopping import epochs_seen
from mltrainer.workspace import STATE_DIR, digest, plain, read_if_whole, write_json

EVERY_S = 1.0
REMOTE_WORKERS = 4  # at a time, by default: other machines' cores cannot be counted here


def workers_of(job: PooledJob, root: Path, events: Events) -> Workers:
    """Return the workers of a study: of this machine, or an engine's jobs on others.

    Args:
        job: The study's job.
        root: The project's folder.
        events: The sender to which losses are reported.

    Raises:
        InputError: There is no GPU, or the engine is not available here.
    """

    def note(text: str) -> None:
        events.send("note", text=text)

    name, silent_s = job.engine or job.config.launch.engine, 60 * job.silent_minutes
    if name == "local":
        return Pool(root, job, places(job.workers, job.config.device, job.threads, job.processes), silent_s, note)
    engine = plugins.part("engines", name)(job.config.launch)
    return RemotePool(root, job, engine, job.workers or REMOTE_WORKERS, silent_s, note)


class Live:
    """Reports a study's progress, at once when a run has ended, else once a second.

    Args:
        folder: The study's folder.
        events: The sender to which it is reported.
    """

    def __init__(self, folder: Path, events: Events) -> None:
        self._path, self._events = folder / LIVE_FILE, events
        self._state: dict[str, Any] = {}
        self._until: float | None = None
        self._runs_each = 1
        self._reported_at = self._written_at = 0.0

    def at(self, what: str, done: int, planned: int, left_s: float | None = None, runs_each: int = 1, **values: Any) -> None:
        """Note the study's progress, which the next `report` sends.

        Args:
            what: The unit of progress: `trials`, or `runs` of the comparison.
            done: The number of those that have ended.
            planned: The number of all.
            left_s: The expected seconds of the rest; None where unknown.
            runs_each: The number of run numbers that each trial has.
            values: The entries `metric` and `best`, of the ranked trials.
        """
        state = {"what": what, "done": done, "planned": planned, **values}
        if state == self._state:
            return
        self._state = state
        self._runs_each = runs_each
        self._until = None if left_s is None else time.monotonic() + left_s
        self._reported_at = 0.0

    def report(self, running: Sequence[Running]) -> None:
        """Report the noted progress, with each worker's run."""
        now = time.monotonic()
        if not self._state or now - self._reported_at < EVERY_S:
            return
        self._reported_at = now
        left = None if self._until is None or self._until < now else round(self._until - now, 1)  # a past end was wrong
        numbered = [one.model_copy(update={"nr": one.nr // self._runs_each}).written() for one in running]
        state = plain({**self._state, "left_s": left, "running": numbered})
        self._events.send("study", **state)
        if now - self._written_at >= EVERY_S:
            self._written_at = now
            write_json(self._path, state)

    def close(self) -> None:
        """Remove the file of the study's progress."""
        self._path.unlink(missing_ok=True)


RUNS_DIR = f"{STATE_DIR}/runs"
STATE_FILE = "state.json"
MOST_CONTRACTS = 256  # kept in memory, each with its config
DEATHS = 3  # chosen by us: a worker that dies this often at one place of a trial dies of the trial

OF_STUDY = ("gate", "code_files", "data_files", "input_files", "parent")  # entries that a study's job shares with its runs' jobs


class Runs:
    """Runs by the contract that names them: found, resumed, or trained now by a worker.

    Attributes:
        furthest: The number of the last trial that this process, or one before it, has begun.

    Args:
        job: The study's job.
        root: The project's folder.
        pool: The workers that train them.
        events: The sender to which progress is reported.
        stop: A function that returns the name of a signal, or None.
    """

    def __init__(self, job: PooledJob, root: Path, pool: Workers, events: Events, stop: Callable[[], str | None]) -> None:
        self.job, self.pool, self.events, self.root = job, pool, events, root
        self.folder = self.root / job.folder
        self.live = Live(self.folder, events)
        self._stop = stop
        self._begun: dict[int, TrainingJob] = {}  # the jobs of the runs in training
        self._twins: list[tuple[int, TrainingConfig, Rungs]] = []  # runs that are trained under another number
        kept = read_if_whole(self.folder / STATE_FILE)
        self._deaths: dict[str, list[str]] = kept.get("deaths", {})  # by run, the places at which its workers died
        self._earlier: float = kept.get("seconds", 0.0)
        self.furthest: int = kept.get("begun", 0)
        self._started = time.monotonic()
        self._noted_at = -math.inf
        self._packs = packed(root / RUNS_DIR)
        self._contracts: dict[int, tuple[TrainingConfig, dict[str, str]]] = {}  # with the config, so that no other gets its id

    @property
    def seconds(self) -> float:
        """The seconds that this process and those before it have worked on the study."""
        return self._earlier + time.monotonic() - self._started

    def keep(self, every_s: float = 0.0) -> None:
        """Save the study's state for a process that goes on with it, unless it was saved within the last `every_s` seconds."""
        if time.monotonic() - self._noted_at < every_s:
            return
        self._noted_at = time.monotonic()
        write_json(self.folder / STATE_FILE, {"deaths": self._deaths, "seconds": self.seconds, "begun": self.furthest})

    def begins(self, trial: int) -> None:
        """Note that a trial begins: for a process that goes on with the study it is then never too late for it."""
        if trial > self.furthest:
            self.furthest = trial
            self.keep()

    def known(self, config: TrainingConfig, limits: Rungs) -> Trained | None:
        """Return the result of a run that need not be trained, as it has ended or reached the rung that ends it; else None."""
        contract = self.contract(config)
        restore(self.root / RUNS_DIR, _run(contract), self._packs)
        result = sound_result(self.root / _folder(contract), contract)
        if result is None:
            return None
        run = _as_searched(result, config)
        is_cut = halving.cut(run.history, limits, config.metric)[1] is not None
        # A run that failed would fail again: its bits are a function of its contract.
        return run if is_cut or result.state in ("finished", "failed") else None

    def begin(self, nr: int, config: TrainingConfig, limits: Rungs) -> None:
        """Give a run to a worker; a run that is already in training is looked at when that training has ended."""
        contract = self.contract(config)
        folder = self.root / _folder(contract)
        # Two processes in one folder would write over each other.
        if self._is_training(folder.name):
            self._twins.append((nr, config, limits))
            return
        if has_ended(folder):
            kept = set_aside(folder).name
            self.events.send("note", text=f"run {folder.name} has changed on disk: kept as {kept}, and trained again")
        more = {key: getattr(self.job, key) for key in OF_STUDY}
        more |= {"rungs": limits} if limits else {}
        more |= {"tool": config.task.trainer} if config.task.trainer != ORCHESTRATOR else {}  # the tool of jobs that name none
        job = TrainingJob(
            run=folder.name,
            phase=self.job.phase,
            purpose="train",
            folder=_folder(contract),
            config=config,
            contract=contract,
            threads=config.threads,
            **more,
        )
        write_json(folder / "job.json", job.written())
        self._give(nr, job)

    def _give(self, nr: int, job: TrainingJob) -> None:
        self._begun[nr] = job
        self.pool.begin(nr, self.root / job.folder / "job.json", processes_of(job.config, self.job.processes))

    def wait(self) -> list[tuple[int, Trained]]:
        """Return the numbers and results of runs that have ended; those whose worker died are begun again.

        Raises:
            StoppedError: A signal stopped the study.
        """
        if (cause := self._stop()) is not None:
            self.pool.stop(15)
            hint = "type the same command again to go on"
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint=hint)
        found = [(ended.nr, self._result(ended)) for ended in self.pool.wait()]
        self.live.report(self.pool.running)
        return [(nr, result) for nr, result in found if result is not None] + self._ended_twins()

    def _is_training(self, run: str) -> bool:
        return any(job.run == run for job in self._begun.values())

    def _ended_twins(self) -> list[tuple[int, Trained]]:
        """Return the results of runs that were trained under another number, and begin those that must go on."""
        twins, self._twins, found = self._twins, [], []
        for nr, config, limits in twins:
            result = None if self._is_training(_run(self.contract(config))) else self.known(config, limits)
            if result is not None:
                found.append((nr, result))
            else:
                self.begin(nr, config, limits)
        return found

    def all(self, configs: Sequence[TrainingConfig], on_end: Callable[[int, Trained], None] | None = None) -> list[Trained]:
        """Return the results of runs, as many trained at a time as there are workers.

        Args:
            configs: The config of each run.
            on_end: A function called with the number and the result of each run, as soon as it is known.

        Raises:
            StoppedError: A signal stopped the study.
        """
        results = {nr: found for nr, config in enumerate(configs) if (found := self.known(config, [])) is not None}
        waiting = [nr for nr in range(len(configs)) if nr not in results]
        report = on_end or (lambda nr, result: None)
        for nr, result in results.items():
            report(nr, result)
        while len(results) < len(configs):
            self.live.at("runs", len(results), len(configs))
            while waiting and self.pool.room:
                nr = waiting.pop(0)
                self.begin(nr, configs[nr], [])
            for nr, result in self.wait():
                results[nr] = result
                report(nr, result)
        return [results[nr] for nr in range(len(configs))]

    def attempts(self, run: str) -> int:
        """Return the number of processes that have tried a run here: one more than the deaths of workers at it."""
        return 1 + len(self._deaths.get(run, []))

    def contract(self, config: TrainingConfig) -> dict[str, str]:
        """Return the contract that names a config's run; it is computed once for the same config."""
        known = self._contracts.get(id(config))
        if known is None:
            if len(self._contracts) >= MOST_CONTRACTS:  # most are of runs that have ended
                self._contracts.clear()
            known = self._contracts[id(config)] = config, self._named(config)
        return known[1]

    def _named(self, config: TrainingConfig) -> dict[str, str]:
        contract = {**self.job.contract, "config_sha256": config_digest(config)}
        if _weights(config) == _weights(self.job.config):
            return contract
        return {key: value for key, value in contract.items() if key != "data_sha256"}  # such weights are part of that digest

    def _result(self, ended: RunEnd) -> Trained | None:
        """Return the result of a run that has ended; None where it was begun again."""
        job = self._begun.pop(ended.nr)
        if ended.reason is not None:
            return Trained(job.run, reason=ended.reason)
        if ended.death is not None:
            return self._again(ended.nr, job, ended.death)
        result = sound_result(self.root / job.folder, job.contract)
        if result is None:
            raise MachineError("the result is not what its worker wrote", where=job.folder, hint="type the same command again")
        return _as_searched(result, job.config)

    def _again(self, nr: int, job: TrainingJob, death: str) -> Trained | None:
        """Begin a run again whose worker died; a run at which workers die again and again failed."""
        at = furthest(self.root / job.folder)
        deaths = self._deaths.setdefault(job.run, [])
        deaths.append(at)
        self.keep()
        self.events.send("note", text=f"  run {job.run}: {death}, at {at}")
        # Only deaths at one place: a run that comes further each time reaches its end.
        if deaths[-DEATHS:].count(at) == DEATHS:
            return Trained(job.run, reason=f"{death}, {len(deaths)} times")
        self._give(nr, job)
        return None


def processes_of(config: TrainingConfig, most: int) -> int:
    """Return the number of processes that train a run together: as many as can share its steps, up to a power of two.

    Another number has the same bits, so that it may depend on the values of a trial.
    """
    while most > 1:
        with contextlib.suppress(InputError):
            config.require_processes(most)
            break
        most //= 2
    return most


def _run(contract: dict[str, str]) -> str:
    return digest(contract)[:12]


def _as_searched(result: RunResult, config: TrainingConfig) -> Trained:
    """Return a run with its evaluations' epochs as rungs count them: as written where only the program knows its samples."""
    steps_per_epoch = math.ceil(result.slots / (config.batch_size * config.accumulate))
    seen = [
        Evaluation.at(epochs_seen(row, steps_per_epoch) if steps_per_epoch else row.epoch, row.step, row.validation)
        for row in result.history
        if config.metric.name in row.validation
    ]
    return Trained(result.id, result.metrics, seen, result.steps, result.wall_s, result=result)


def _folder(contract: dict[str, str]) -> str:
    return f"{RUNS_DIR}/{_run(contract)}"


def _weights(config: TrainingConfig) -> list[str | None]:
    """Return the paths of the weights that a config's model begins with, or None, and of its teachers' weights."""
    teachers = [one.teacher.weights for one in config.strategies if isinstance(one, Distillation)]
    return [config.start.weights if config.start is not None else None, *teachers]
