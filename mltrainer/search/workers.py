"""Workers that train the runs of a study, several at a time: worker processes of this machine, or jobs on others.

A run ends in its worker by itself, with the worker's death, or lost. Lost runs are begun again: without limit, after a pause that
grows, and without an entry in any record.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from mltrainer.errors import ended_with
from mltrainer.executors.executor import EVENTS
from mltrainer.records.event import Error, Running
from mltrainer.records.job import JobBase
from mltrainer.tools.mark import new_mark
from mltrainer.workspace import write_json

PROGRAM = "mltrainer.tools.worker"
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT)  # exit codes of a worker that was asked to stop, and has saved
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0  # chosen by us: a busy queue is asked about twelve times an hour
POLL_S = 0.2


@dataclass(frozen=True)
class RunEnd:
    """A run's end in its worker.

    Attributes:
        nr: The run's number, as it was given.
        reason: The reason why it could not be trained; None where its result is in its folder.
        death: The worker's death, in words, where that ended the run; else None.
        lost: The outside cause of its loss: its machine, a preemption, the queue. The run is begun again. Else None.
    """

    nr: int
    reason: str | None = None
    death: str | None = None
    lost: str | None = None


@dataclass
class Reports:
    """A worker's reports so far, line by line.

    Attributes:
        running: The progress of its run; None while it has none.
        ended: The end of its run; None before it.
        error: The worker's own error, which ends it; None where it has none.
    """

    running: Running | None = None
    ended: RunEnd | None = None
    error: Error | None = None

    def take(self, line: bytes) -> None:
        """Take in a line; progress that comes after a run's end is ignored."""
        values = json.loads(line)
        event = values.pop("event")
        if event == "end":
            self.ended, self.running = RunEnd(**values), None
        elif event == "beat" and self.running is not None:
            self.running = Running(nr=self.running.nr, **values)
        elif event == "error":
            self.error = Error.model_validate_json(line)

    def end(self, code: int) -> RunEnd | None:
        """Return the end of the run of a worker that ended with an exit code; None where it had none.

        Raises:
            MltrainerError: The worker's own report of a fault that is not the run's.
        """
        if self.ended is not None:
            return self.ended
        # A worker that was stopped reports that as its error, which is not about the run.
        error = None if self.error is None or self.error.exit_code in STOPPED else self.error
        if error is not None and code >= 0:
            raise error.raised()
        if self.running is None:
            return None
        # Of several processes, that one was killed or hung.
        return end_of(self.running.nr, code) if error is None else RunEnd(self.running.nr, death=error.message)


def end_of(nr: int, code: int) -> RunEnd:
    """Return the end of a run whose worker ended first: lost where the worker was asked to stop, else the worker's death."""
    name = ended_with(code) if code < 0 else f"exit code {code}"
    # No training sends these to itself: an operator does, or a machine that shuts down.
    if code in STOPPED or -code in (signal.SIGTERM, signal.SIGINT):
        return RunEnd(nr, lost=f"its process was stopped by {ended_with(code)}")
    return RunEnd(nr, death=f"its process ended with {name}")


class _Pause(NamedTuple):
    until: float
    nr: int


def pause_s(losses: int) -> float:
    """Return the seconds before a lost run is begun again, by the number of its losses, 1 or more."""
    return float(min(FIRST_PAUSE_S * 2 ** min(losses - 1, 20), LONGEST_PAUSE_S))


class Workers(ABC):
    """Workers that train runs; as a context manager they end the remaining runs.

    Args:
        root: The project's folder.
        job: The study's job, by whose folder and mark a worker is started.
        number: The number of runs at a time.
        silent_s: The seconds of silence after which a worker is killed.
        note: A function that takes a line on each loss.
    """

    def __init__(self, root: Path, job: JobBase, number: int, silent_s: float, note: Callable[[str], None]) -> None:
        self._root, self._folder, self._number, self._silent_s, self._note = root, root / job.folder, number, silent_s, note
        launch, self._mark = new_mark()
        self._job = job.model_copy(update={"launch": launch})
        self._jobs: dict[int, tuple[Path, int]] = {}
        self._losses: dict[int, int] = {}
        self._pauses: list[_Pause] = []
        self._ended: list[RunEnd] = []  # runs whose end was known before they could begin

    def __enter__(self) -> Self:
        write_json(self._folder / "worker.json", self._job.written())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop(signal.SIGTERM)
        finally:
            self._close()

    @property
    def room(self) -> int:
        """The number of runs that can begin now."""
        return self._number - self.busy

    @property
    def busy(self) -> int:
        """The number of runs that were begun and have not been returned."""
        return len(self._training) + len(self._ended) + len(self._pauses)

    @property
    def running(self) -> list[Running]:
        """The runs in training by number, each as its worker reported it last."""
        found = [reports.running for reports in self._training if reports.running is not None]
        return sorted(found, key=lambda one: one.nr)

    def begin(self, nr: int, job: Path, processes: int = 1) -> None:
        """Begin a run.

        Args:
            nr: The run's number.
            job: The file of its job.
            processes: The number of processes that train it together.
        """
        self._jobs[nr] = job, processes
        if (ended := self._begin(nr, job, processes)) is not None:
            self._ended.append(ended)

    def wait(self, timeout: float = POLL_S) -> list[RunEnd]:
        """Return the runs that have ended, none of them lost, as soon as there is one, or none after a while.

        Raises:
            MltrainerError: A worker's own fault, such as a full disk; or no worker can start.
            DifferenceError: Two attempts at a run, or two machines, do not compute the same bits.
        """
        now = time.monotonic()
        due = [pause.nr for pause in self._pauses if pause.until <= now]
        self._pauses = [pause for pause in self._pauses if pause.until > now]
        for nr in due:
            self.begin(nr, *self._jobs[nr])
        known, self._ended = self._ended, []
        return [one for one in [*known, *self._wait(0 if known else timeout)] if not self._was_lost(one)]

    def _was_lost(self, ended: RunEnd) -> bool:
        if ended.lost is None:
            self._losses.pop(ended.nr, None)
            return False
        losses = self._losses[ended.nr] = self._losses.get(ended.nr, 0) + 1
        pause = pause_s(losses)
        self._note(f"  run {self._jobs[ended.nr][0].parent.name} was lost: {ended.lost}; it goes on in {pause:.0f} s")
        self._pauses.append(_Pause(time.monotonic() + pause, ended.nr))
        return True

    def stop(self, number: int) -> None:
        """End all workers by a signal, and wait until those that train have saved their state."""
        self._pauses.clear()
        self._stop(number)

    def _worker(self) -> list[str]:
        """Return the arguments that start a worker, which reads its runs from standard input."""
        return [sys.executable, "-P", "-m", PROGRAM, str(self._folder / "worker.json"), EVENTS]

    @property
    @abstractmethod
    def _training(self) -> Sequence[Reports]:
        """The workers' reports on the runs in training."""

    @abstractmethod
    def _begin(self, nr: int, job: Path, processes: int) -> RunEnd | None:
        """Give a run to a worker that has none; return its end where that is known at once."""

    @abstractmethod
    def _wait(self, timeout: float) -> list[RunEnd]:
        """Return the runs that have ended, as `wait` does, lost ones among them."""

    @abstractmethod
    def _stop(self, number: int) -> None:
        """End all workers."""

    @abstractmethod
    def _close(self) -> None:
        """End the process, or leave the cluster, that starts the workers."""


def order_line(nr: int, job: Path) -> str:
    """Return the line by which a worker is given a run."""
    return json.dumps({"nr": nr, "job": str(job)})
