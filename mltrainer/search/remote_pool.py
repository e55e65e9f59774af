"""Runs trained on other machines: one job of an engine for each attempt, followed by the files that its supervisor writes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mltrainer.errors import DifferenceError, InputError, MachineError
from mltrainer.executors import supervisor
from mltrainer.executors.engine import Engine, EngineAwayError, RemoteCommand, Sighting
from mltrainer.executors.executor import EVENTS
from mltrainer.records.event import Error, Running
from mltrainer.records.job import JobBase, TrainingJob
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.search.attempts import OTHER_BITS, Attempt, attempts_at, new_attempt
from mltrainer.search.ended import Ended
from mltrainer.search.pool import POLL_S, PROGRAM, STOPPED, end_of
from mltrainer.tools.mark import new_mark
from mltrainer.workspace import read_if_whole, read_json, write_json

SUPERVISOR = "mltrainer.executors.supervisor"
NEVER_STARTED = 3  # jobs in a row that end before their supervisor says anything, while none has yet: nothing can start there
# Of this process's machine, or of a job that it runs in itself: they do not hold for another machine or job.
OF_THIS_MACHINE = (
    "SLURM_",
    "SBATCH_",
    "SQUEUE_",
    "SCANCEL_",
    "RAY_",
    "CUDA_VISIBLE_DEVICES",
    "HOSTNAME",
    "TMPDIR",
    "PMI_",
    "PMIX_",
)
KEPT_VARIABLES = ("SLURM_CONF",)
SAME_PATHS = "the project's folder and the Python of this command must be there under the same paths"


@dataclass(frozen=True)
class Timing:
    """How long what is waited for, in seconds. The defaults are chosen by us, for queues and file systems that are slow.

    Attributes:
        files_s: Between two looks at the files of the attempts.
        look_s: Between two questions to the engine.
        gone_s: A job that the engine lost may still show its end, which a shared file system brings late.
        alive_s: Between two signs of life of a supervisor, and of this process.
        lost_s: A supervisor without one for so long is taken for lost.
        orphan_s: A supervisor that hears nothing of this process for so long stops its worker.
        grace_s: Of a worker that is stopped, for its step and its checkpoint.
    """

    files_s: float = 1.0
    look_s: float = 2.0
    gone_s: float = 10.0
    alive_s: float = 5.0
    lost_s: float = 120.0
    orphan_s: float = 300.0
    grace_s: float = 60.0


PATIENT = Timing()


@dataclass
class _Followed:
    """An attempt, as far as it was heard of.

    Attributes:
        attempt: Where it lies.
        nr: The run's number; None of one that was given up, or is an earlier process's.
        job: In the engine.
    """

    attempt: Attempt
    nr: int | None
    job: str
    read: int = 0  # bytes of its lines
    running: Running | None = None
    reason: str | None = None
    has_ended: bool = False  # its worker said so
    error: Error | None = None
    alive: Any = None
    heard: float = 0.0
    gone: float | None = None
    where: str = ""

    @property
    def machine(self) -> str:
        """Where it runs, for a sentence."""
        return self.where or "a machine that has not shown itself"


class RemotePool:
    """Runs on an engine's machines; as a context manager it ends them.

    Args:
        root: The project's folder, which all machines share.
        job: The study's, by whose folder and mark a worker is started.
        engine: Where jobs run.
        workers: The number of runs at a time.
        silent_s: A worker that says nothing for so long is killed.
        timing: How long is waited.
    """

    def __init__(
        self,
        root: Path,
        job: JobBase,
        engine: Engine,
        workers: int,
        silent_s: float,
        timing: Timing = Timing(),
    ) -> None:
        self._root, self._folder, self._engine, self._workers = root, root / job.folder, engine, workers
        self._silent_s, self._timing = silent_s, timing
        launch, self._mark = new_mark()
        self._job = job.model_copy(update={"launch": launch})
        self._followed: list[_Followed] = []
        self._ended: list[Ended] = []  # what was found before it could begin
        self._sightings: Mapping[str, Sighting] = {}
        self._looked_at = self._read_at = self._beat_at = float("-inf")
        self._beats = 0
        self._never_started = 0
        self._has_started = self._was_taken = False
        self._found: set[str] = set()  # runs that an attempt brought which had been given up

    def __enter__(self) -> Self:
        write_json(self._folder / "worker.json", self._job.written())
        for attempt in attempts_at(self._root):
            # Of an earlier process: it may have ended since, or be at it still.
            begun = attempt.begun
            if begun is None:
                attempt.remove()
                continue
            if begun.engine == self._engine.name and attempt.ending is None:
                self._engine.cancel([begun.job])
            self._followed.append(_Followed(attempt, None, begun.job))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(signal.SIGTERM)
        self._engine.close()

    @property
    def room(self) -> int:
        """The number of runs that can begin now."""
        return self._workers - self.busy

    @property
    def busy(self) -> int:
        """The number of runs that were begun and have not been returned."""
        return len(self._mine) + len(self._ended)

    @property
    def running(self) -> list[Running]:
        """The runs in training by number, each as its worker reported it last."""
        found = [one.running for one in self._mine if one.running is not None]
        return sorted(found, key=lambda one: one.nr)

    @property
    def _mine(self) -> list[_Followed]:
        return [one for one in self._followed if one.nr is not None]

    def begin(self, nr: int, job: Path) -> None:
        """Begin an attempt at a run as a job of the engine."""
        if job.parent.name in self._found:
            self._found.discard(job.parent.name)
            self._ended.append(Ended(nr))
            return
        attempt = new_attempt(self._root, TrainingJob.model_validate(read_json(job)))
        command = self._command(nr, attempt)
        try:
            begun = self._engine.begin(command)
        except EngineAwayError as error:
            attempt.remove()
            self._ended.append(Ended(nr, lost=str(error)))
            return
        except InputError as error:
            attempt.remove()
            if not self._was_taken:
                raise
            self._ended.append(Ended(nr, lost=error.message))  # the same job was taken before: it is no fault of the settings
            return
        self._was_taken = True
        attempt.note_begun(self._engine.name, begun)
        self._followed.append(_Followed(attempt, nr, begun, running=Running(nr=nr)))

    def _command(self, nr: int, attempt: Attempt) -> RemoteCommand:
        config, timing = self._job.config, self._timing
        worker = [sys.executable, "-P", "-m", PROGRAM, str(self._folder / "worker.json"), EVENTS]
        order = supervisor.Order(
            arguments=worker,
            root=str(self._root),
            line=json.dumps({"nr": nr, "job": str(attempt.job_file)}),
            beat=str(self._folder / "beat.json"),
            alive_s=timing.alive_s,
            silent_s=self._silent_s,
            orphan_s=timing.orphan_s,
            grace_s=timing.grace_s,
        )
        write_json(attempt.folder / supervisor.ORDER_FILE, asdict(order))
        return RemoteCommand(
            name=f"mltrainer-{attempt.run}",
            arguments=[sys.executable, "-P", "-m", SUPERVISOR, str(attempt.folder)],
            folder=self._root,
            environment={**portable(os.environ), **self._mark},
            log=attempt.folder / supervisor.LOG_FILE,
            cores=self._job.threads + config.loader.processes,
            gpus=int(config.device == "cuda"),
        )

    def wait(self, timeout: float = POLL_S) -> list[Ended]:
        """Return the runs that have ended, as soon as there is one, or none after a while.

        Raises:
            MltrainerError: A worker's own fault; or no job can start on the engine's machines.
            DifferenceError: Two attempts at a run, or two machines, do not compute the same.
        """
        self._beat()
        self._look()
        found, self._ended = self._ended, []
        if time.monotonic() - self._read_at >= self._timing.files_s:
            self._read_at = time.monotonic()
            found += [ended for one in [*self._followed] for ended in self._follow(one)]
        if not found:
            time.sleep(min(timeout, self._timing.files_s))
        return found

    def _beat(self) -> None:
        if time.monotonic() - self._beat_at >= self._timing.alive_s:
            self._beats, self._beat_at = self._beats + 1, time.monotonic()
            write_json(self._folder / "beat.json", {"count": self._beats, "process": os.getpid()})

    def _look(self) -> None:
        """Ask the engine, now and then; while it does not answer, its jobs are as they were."""
        if self._followed and time.monotonic() - self._looked_at >= self._timing.look_s:
            self._looked_at = time.monotonic()
            try:
                self._sightings = self._engine.look()
            except EngineAwayError:
                return
            for one in self._followed:
                self._sight(one)

    def _sight(self, one: _Followed) -> None:
        seen = self._sightings.get(one.job)
        if seen is not None and seen.state in ("waiting", "running"):
            one.gone, one.where = None, seen.machine or one.where
            # A job that is suspended shows no life, and one that begins has not yet.
            one.heard = time.monotonic() if seen.state == "waiting" else one.heard
        elif one.gone is None:
            one.gone = time.monotonic()

    # --- one attempt ---

    def _follow(self, one: _Followed) -> Iterator[Ended]:
        """Yield the end of an attempt's run, once it has one; of an attempt that was given up, none."""
        self._read(one)
        ending = one.attempt.ending
        if ending is not None:
            self._read(one)  # its last words, which may have come since
            one.where = ending.machine
            self._followed.remove(one)
            yield from self._end(one, ending)
        elif one.nr is not None and (lost := self._lost(one, one.nr)) is not None:
            self._engine.cancel([one.job])
            one.nr = None  # but its folder is watched: its process may live, and end
            if lost.death is not None:
                self._followed.remove(one)
                one.attempt.publish()
            yield lost

    def _end(self, one: _Followed, ending: supervisor.Ending) -> Iterator[Ended]:
        """Take an attempt whose worker has ended: publish what it wrote, and yield the end of the run."""
        self._require_one_kind(one)
        if one.nr is not None:
            one.attempt.publish()
            yield self._told(one.nr, one, ending)
        elif not one.attempt.has_result:
            one.attempt.remove()
        else:
            one.attempt.publish()
            yield from self._instead_of_successor(one.attempt.run)

    def _instead_of_successor(self, run: str) -> Iterator[Ended]:
        """Yield the end of a run that an attempt brought which was taken for lost: the one after it is not needed any more."""
        successor = next((one for one in self._mine if one.attempt.run == run), None)
        if successor is None:
            self._found.add(run)  # it waits to begin again, or has ended
            return
        nr, successor.nr = successor.nr, None
        self._engine.cancel([successor.job])
        assert nr is not None
        yield Ended(nr)

    def _told(self, nr: int, one: _Followed, ending: supervisor.Ending) -> Ended:
        if one.has_ended:
            return Ended(nr, one.reason)
        if ending.stopped is not None:
            return Ended(nr, lost=f"stopped on {ending.machine} by {ending.stopped}")
        if one.error is not None and one.error.exit_code not in STOPPED:
            error = one.error.raised()
            if not isinstance(error, MachineError):
                raise error
            return Ended(nr, lost=f"{ending.machine}: {error.message}")  # a full disk, say: of that machine
        return end_of(nr, ending.code)

    def _require_one_kind(self, one: _Followed) -> None:
        """Refuse results of machines that do not compute the same bits: the table would depend on which trained what.

        Raises:
            DifferenceError: The run's machine has another numerics class than the first one of the study.
        """
        found = read_if_whole(one.attempt.work / RESULT_FILE).get("numerics_class")
        path = self._folder / "numerics.json"
        first = read_if_whole(path)
        if found is None:
            return
        if not first:
            write_json(path, {"numerics_class": found, "machine": one.where})
        elif first["numerics_class"] != found:
            what = f"{one.where} does not compute the same bits as {first['machine']}, which trained others of the study"
            raise DifferenceError(what, where=f"run {one.attempt.run}", mend=OTHER_BITS)

    def _lost(self, one: _Followed, nr: int) -> Ended | None:
        """Return the loss of an attempt whose end nobody wrote, or the death that its engine tells of; None while it may live."""
        now, seen = time.monotonic(), self._sightings.get(one.job)
        if one.gone is None:
            is_silent = one.alive is not None and now - one.heard > self._timing.lost_s
            return Ended(nr, lost=f"{one.machine} gave no sign of life for {self._timing.lost_s:.0f} s") if is_silent else None
        if now - one.gone < self._timing.gone_s:
            return None
        if seen is not None and seen.state == "died":
            return Ended(nr, death=seen.why)
        why = seen.why if seen is not None else f"{self._engine.name} does not know its job {one.job} any more"
        if one.alive is None and seen is not None and seen.state == "failed":
            why = self._count_unstarted(one, why)
        return Ended(nr, lost=f"{why} ({one.machine})")

    def _count_unstarted(self, one: _Followed, why: str) -> str:
        """Return the last words of a job that ended before its supervisor began.

        Raises:
            InputError: Several did in a row, and none has ever begun.
        """
        self._never_started += 1
        words = _last_line(one.attempt.folder / supervisor.LOG_FILE) or why
        if not self._has_started and self._never_started >= NEVER_STARTED:
            raise InputError(f"no job can start on {one.machine}: {words}", where=self._engine.name, mend=SAME_PATHS)
        return words

    def _read(self, one: _Followed) -> None:
        """Take in what an attempt's supervisor has written since."""
        if (alive := read_if_whole(one.attempt.folder / supervisor.ALIVE_FILE)) and alive != one.alive:
            one.alive, one.heard, one.where = alive, time.monotonic(), alive["machine"]
            self._has_started, self._never_started = True, 0
        try:
            with open(one.attempt.folder / supervisor.LINES_FILE, "rb") as file:
                file.seek(one.read)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        one.read += len(whole)
        for line in whole.splitlines():
            self._take(one, json.loads(line))

    def _take(self, one: _Followed, values: dict[str, Any]) -> None:
        event = values.pop("event")
        if event == "end":
            one.has_ended, one.reason = True, values["reason"]
        elif event == "beat" and one.nr is not None:
            one.running = Running(nr=one.nr, **values)
        elif event == "error":
            one.error = Error(event=event, **values)

    # --- the end ---

    def stop(self, number: int) -> None:
        """End all jobs, and wait until those that train have saved their state, which the next process goes on from."""
        mine = self._mine
        for one in mine:
            (one.attempt.folder / supervisor.STOP_FILE).touch()
        # One that has not begun saves nothing.
        self._engine.cancel([one.job for one in mine if one.alive is None])
        late = time.monotonic() + (self._timing.grace_s + self._timing.gone_s if mine else 0)
        while any(self._may_save(one) for one in mine) and time.monotonic() < late:
            self._look()
            for one in mine:
                self._read(one)
            time.sleep(self._timing.files_s)
        self._engine.cancel([one.job for one in self._followed if one.attempt.ending is None])
        for one in self._followed:
            self._leave(one)
        self._followed.clear()

    def _leave(self, one: _Followed) -> None:
        """Publish an attempt that has ended, and remove one that cannot write any more: the others' processes may live."""
        is_over = one.attempt.ending is not None
        if is_over and (one.nr is not None or one.attempt.has_result):
            one.attempt.publish()
        elif is_over or one.alive is None or (one.gone is not None and time.monotonic() - one.heard > self._timing.lost_s):
            one.attempt.remove()

    def _may_save(self, one: _Followed) -> bool:
        return one.alive is not None and one.attempt.ending is None and one.gone is None


def portable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold on another machine too."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT_VARIABLES or not any(name.startswith(start) for start in OF_THIS_MACHINE)
    }


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
