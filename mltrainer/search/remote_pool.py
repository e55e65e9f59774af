"""Runs trained on other machines: one job of an engine for each attempt, followed by the files that its supervisor writes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from mltrainer.errors import DifferenceError, InputError, MachineError
from mltrainer.executors import supervisor
from mltrainer.executors.executor import Engine, EngineAwayError, RemoteCommand, Sighting, portable
from mltrainer.records.event import Running
from mltrainer.records.job import JobBase, TrainingJob
from mltrainer.search.attempts import OTHER_BITS, Attempt, Begun, attempts_at, new_attempt
from mltrainer.search.workers import Reports, RunEnd, Workers, order_line
from mltrainer.workspace import read_if_whole, read_json, write_json

SUPERVISOR = "mltrainer.executors.supervisor"
NEVER_STARTED = 3  # jobs in a row that end before their supervisor reports, while none has ever: nothing can start there
SAME_PATHS = "the project's folder and the Python of this command must be there under the same paths"


@dataclass(frozen=True)
class Timing:
    """Waiting times in seconds. The defaults are chosen by us, for slow queues and file systems.

    Attributes:
        files_s: The time between two looks at the files of the attempts.
        look_s: The time between two questions to the engine.
        gone_s: The time for the end of a job that the engine lost, which a shared file system shows late.
        alive_s: The time between two signs of life of a supervisor, and of this process.
        lost_s: The time without a sign of life after which a supervisor counts as lost.
        orphan_s: The time without a sign of life of this process after which a supervisor stops its worker.
        grace_s: The time of a stopped worker for its step and its checkpoint.
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
class Followed:
    """An attempt, with the reports of its supervisor and its engine so far.

    Attributes:
        attempt: The attempt, with its folder.
        nr: The run's number; None for an earlier process's attempt.
        job: The id of its job in the engine.
        is_given_up: Whether another attempt takes its place. Its folder is still watched: its process may live, and end.
        reports: Its worker's reports.
        alive: Its supervisor's last sign of life; None before the first.
        heard: The time of that sign, or of the job last waiting, in seconds of this process's clock.
        gone: The time at which its engine lost its job, in seconds of this process's clock; None while it has the job.
        where: The name of its machine; empty where unknown.
    """

    attempt: Attempt
    nr: int | None
    job: str
    is_given_up: bool = False
    reports: Reports = field(default_factory=Reports)
    alive: supervisor.Alive | None = None
    heard: float = 0.0
    gone: float | None = None
    where: str = ""
    _read: int = 0  # bytes of its lines

    @property
    def machine(self) -> str:
        """The name of its machine, for a sentence."""
        return self.where or "a machine that has not shown itself"

    @property
    def is_awaited(self) -> bool:
        """Whether its end is the end of a run of this process."""
        return self.nr is not None and not self.is_given_up

    @property
    def may_save(self) -> bool:
        """Whether its worker may still be saving its state."""
        return self.alive is not None and self.attempt.ending is None and self.gone is None

    def hear(self) -> bool:
        """Read its supervisor's new lines, and return True where there is a new sign of life."""
        found = read_if_whole(self.attempt.folder / supervisor.ALIVE_FILE)
        alive = supervisor.Alive(**found) if found else None
        is_new = alive is not None and alive != self.alive
        if alive is not None and is_new:
            self.alive, self.heard, self.where = alive, time.monotonic(), alive.machine
        for line in self._lines():
            self.reports.take(line)
        return is_new

    def _lines(self) -> list[bytes]:
        """Return the complete lines that were not read before."""
        try:
            with open(self.attempt.folder / supervisor.LINES_FILE, "rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()

    def last_words(self) -> str:
        """Return the last line of its log; empty where there is none."""
        try:
            lines = (self.attempt.folder / supervisor.LOG_FILE).read_text("utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


class RemotePool(Workers):
    """Runs on an engine's machines.

    Args:
        root: The project's folder, which all machines share.
        job: The study's job, by whose folder and mark a worker is started.
        engine: The engine that runs the jobs.
        workers: The number of runs at a time.
        silent_s: The seconds of silence after which a worker is killed.
        note: A function that takes a line on each loss.
        timing: The waiting times.
    """

    def __init__(
        self,
        root: Path,
        job: JobBase,
        engine: Engine,
        workers: int,
        silent_s: float,
        note: Callable[[str], None],
        timing: Timing = PATIENT,
    ) -> None:
        super().__init__(root, job, workers, silent_s, note)
        self._engine, self._timing = engine, timing
        self._followed: list[Followed] = []
        self._sightings: Mapping[str, Sighting] = {}
        self._looked_at = self._read_at = self._beat_at = float("-inf")
        self._beats = 0
        self._was_taken = False
        self._unstarted: int | None = 0  # jobs that ended before their supervisor reported; None once one has
        self._found: set[str] = set()  # runs with a result from an attempt that had been given up

    def __enter__(self) -> Self:
        for attempt in attempts_at(self._root):
            self._take_over(attempt)
        return super().__enter__()

    def _take_over(self, attempt: Attempt) -> None:
        """Follow an earlier process's attempt, which may have ended since, or still train; leave those of other studies."""
        begun = attempt.begun
        if begun is None:
            attempt.publish()
        elif begun.study == self._job.folder:
            if begun.engine == self._engine.name and attempt.ending is None:
                self._engine.cancel([begun.job])
            self._followed.append(Followed(attempt, None, begun.job))

    @property
    def _mine(self) -> list[Followed]:
        return [one for one in self._followed if one.is_awaited]

    @property
    def _training(self) -> list[Reports]:
        return [one.reports for one in self._mine]

    def _begin(self, nr: int, job: Path, processes: int) -> RunEnd | None:
        if job.parent.name in self._found:
            self._found.discard(job.parent.name)
            return RunEnd(nr)
        attempt = new_attempt(self._root, TrainingJob.model_validate(read_json(job)))
        try:
            begun = self._engine.begin(self._command(nr, attempt, processes))
        except (EngineAwayError, InputError) as error:
            attempt.remove()
            # A job that is refused after another was taken: the settings are not at fault.
            if isinstance(error, InputError) and not self._was_taken:
                raise
            return RunEnd(nr, lost=error.message)
        self._was_taken = True
        attempt.note_begun(Begun(self._engine.name, begun, self._job.folder))
        self._followed.append(Followed(attempt, nr, begun, reports=Reports(Running(nr=nr))))
        return None

    def _command(self, nr: int, attempt: Attempt, processes: int) -> RemoteCommand:
        config, timing = self._job.config, self._timing
        order = supervisor.Order(
            arguments=self._worker(),
            root=str(self._root),
            line=order_line(nr, attempt.job_file),
            beat=str(self._folder / "beat.json"),
            alive_s=timing.alive_s,
            silent_s=self._silent_s,
            orphan_s=timing.orphan_s,
            grace_s=timing.grace_s,
            processes=processes,
            life_sign_s=config.launch.life_sign_s,
        )
        write_json(attempt.folder / supervisor.ORDER_FILE, asdict(order))
        return RemoteCommand(
            name=f"mltrainer-{attempt.run}",
            arguments=[sys.executable, "-P", "-m", SUPERVISOR, str(attempt.folder)],
            folder=self._root,
            environment={**portable(os.environ), **self._mark},
            log=attempt.folder / supervisor.LOG_FILE,
            cores=processes * (self._job.threads + config.loader.processes),
            gpus=processes * int(config.device == "cuda"),
        )

    def _wait(self, timeout: float) -> list[RunEnd]:
        self._beat()
        self._look()
        found: list[RunEnd] = []
        if time.monotonic() - self._read_at >= self._timing.files_s:
            self._read_at = time.monotonic()
            found = [ended for one in [*self._followed] for ended in self._follow(one)]
        if not found:
            time.sleep(min(timeout, self._timing.files_s))
        return found

    def _beat(self) -> None:
        if time.monotonic() - self._beat_at >= self._timing.alive_s:
            self._beats, self._beat_at = self._beats + 1, time.monotonic()
            write_json(self._folder / "beat.json", {"count": self._beats, "process": os.getpid()})

    def _look(self) -> None:
        """Ask the engine for its jobs every `look_s`; while it does not answer, their states stay."""
        if self._followed and time.monotonic() - self._looked_at >= self._timing.look_s:
            self._looked_at = time.monotonic()
            try:
                self._sightings = self._engine.look()
            except EngineAwayError:
                return
            for one in self._followed:
                self._sight(one)

    def _sight(self, one: Followed) -> None:
        seen = self._sightings.get(one.job)
        if seen is not None and seen.state in ("waiting", "running"):
            one.gone, one.where = None, seen.machine or one.where
            # A suspended job gives no sign of life, and one that begins has not yet.
            one.heard = time.monotonic() if seen.state == "waiting" else one.heard
        elif one.gone is None:
            one.gone = time.monotonic()

    # --- one attempt ---

    def _follow(self, one: Followed) -> Iterator[RunEnd]:
        """Yield the end of an attempt's run, once it has one; none of an attempt that was given up."""
        self._hear(one)
        ending = one.attempt.ending
        if ending is not None:
            self._hear(one)  # its last lines, which may have come since
            one.where = ending.machine
            self._followed.remove(one)
            self._require_one_kind(one)
            has_brought = one.attempt.publish()
            if one.nr is not None and not one.is_given_up:
                yield self._end_of(one.nr, one, ending)
            elif has_brought:
                yield from self._instead_of_successor(one)
        elif one.nr is not None and not one.is_given_up and (lost := self._lost(one, one.nr)) is not None:
            self._engine.cancel([one.job])
            one.is_given_up = True
            if lost.death is not None:
                self._followed.remove(one)
                one.attempt.publish()
            yield lost

    def _instead_of_successor(self, one: Followed) -> Iterator[RunEnd]:
        """Yield the end of a run whose attempt had counted as lost: its successor is no longer needed."""
        run = one.attempt.run
        successor = next((other for other in self._mine if other.attempt.run == run), None)
        if successor is not None and successor.nr is not None:
            successor.is_given_up = True
            self._engine.cancel([successor.job])
            yield RunEnd(successor.nr)
        elif one.is_given_up:
            self._found.add(run)  # it waits to begin again

    def _end_of(self, nr: int, one: Followed, ending: supervisor.Ending) -> RunEnd:
        if one.reports.ended is None and ending.stopped is not None:
            return RunEnd(nr, lost=f"stopped on {ending.machine} by {ending.stopped}")
        try:
            found = one.reports.end(ending.code)
        except MachineError as error:  # of that machine, such as a full disk
            return RunEnd(nr, lost=f"{ending.machine}: {error.message}")
        assert found is not None, "its worker was given the run"
        return found

    def _require_one_kind(self, one: Followed) -> None:
        """Refuse results of machines that do not compute the same bits: the table would depend on each trial's machine.

        Raises:
            DifferenceError: The run's machine has another numerics class than the first one of the study.
        """
        found = one.attempt.numerics_class
        path = self._folder / "numerics.json"
        if found is None:
            return
        if not (first := read_if_whole(path)):
            write_json(path, {"numerics_class": found, "machine": one.where})
        elif first["numerics_class"] != found:
            one.attempt.remove()  # of no use: machines of one kind train the run again
            what = f"{one.where} does not compute the same bits as {first['machine']}, which trained others of the study"
            raise DifferenceError(what, where=f"run {one.attempt.run}", hint=OTHER_BITS)

    def _lost(self, one: Followed, nr: int) -> RunEnd | None:
        """Return the loss of an attempt without a written end, or the death that its engine reports; None while it may live."""
        now, seen = time.monotonic(), self._sightings.get(one.job)
        if one.gone is None:
            is_silent = one.alive is not None and now - one.heard > self._timing.lost_s
            return RunEnd(nr, lost=f"{one.machine} gave no sign of life for {self._timing.lost_s:.0f} s") if is_silent else None
        if now - one.gone < self._timing.gone_s:
            return None
        if seen is not None and seen.state == "died":
            return RunEnd(nr, death=seen.why)
        why = seen.why if seen is not None else f"{self._engine.name} does not know its job {one.job} any more"
        if one.alive is None and seen is not None and seen.state == "failed":
            why = self._count_unstarted(one, why)
        return RunEnd(nr, lost=f"{why} ({one.machine})")

    def _count_unstarted(self, one: Followed, why: str) -> str:
        """Return the last words of a job that ended before its supervisor began, and count it.

        Raises:
            InputError: Several jobs did in a row, and none has ever begun.
        """
        words = one.last_words() or why
        if self._unstarted is not None:
            self._unstarted += 1
        if self._unstarted == NEVER_STARTED:
            raise InputError(f"no job can start on {one.machine}: {words}", where=self._engine.name, hint=SAME_PATHS)
        return words

    def _hear(self, one: Followed) -> None:
        if one.hear():
            self._unstarted = None

    # --- the end ---

    def _stop(self, _number: int) -> None:
        mine = self._mine
        for one in mine:
            (one.attempt.folder / supervisor.STOP_FILE).touch()
            self._hear(one)  # it may have begun since the last look
        # One that has not begun saves nothing.
        self._engine.cancel([one.job for one in mine if one.alive is None])
        late = time.monotonic() + (self._timing.grace_s + self._timing.gone_s if mine else 0)
        while any(one.may_save for one in mine) and time.monotonic() < late:
            self._look()
            for one in mine:
                self._hear(one)
            time.sleep(self._timing.files_s)
        self._engine.cancel([one.job for one in self._followed if one.attempt.ending is None])
        for one in self._followed:
            self._leave(one)
        self._followed.clear()

    def _leave(self, one: Followed) -> None:
        """Publish an attempt that cannot write any more; other attempts' processes may live."""
        self._hear(one)
        is_lost = one.gone is not None and time.monotonic() - one.heard > self._timing.lost_s
        if one.attempt.ending is not None or one.alive is None or is_lost:
            one.attempt.publish()

    def _close(self) -> None:
        self._engine.close()
