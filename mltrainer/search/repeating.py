"""Lost runs are begun again: without limit, after a pause that grows, and without an entry in any record."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from mltrainer.records.event import Running
from mltrainer.search.ended import Ended

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0  # chosen by us: a busy queue is asked about twelve times an hour
POLL_S = 0.2


class Workers(Protocol):
    """Workers that train runs, several at a time; as a context manager they end the remaining runs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    @property
    def room(self) -> int:
        """The number of runs that can begin now."""

    @property
    def busy(self) -> int:
        """The number of runs in training."""

    @property
    def running(self) -> list[Running]:
        """The runs in training by number, each as its worker reported it last."""

    def begin(self, nr: int, job: Path) -> None:
        """Give a run to a worker that has none."""

    def wait(self, timeout: float = POLL_S) -> list[Ended]:
        """Return the runs that have ended, as soon as there is one, or none after a while.

        Raises:
            MltrainerError: A worker's own fault, such as a full disk.
        """

    def stop(self, number: int) -> None:
        """End all workers, and wait until those that train have saved their state."""


class _Pause(NamedTuple):
    until: float
    nr: int
    job: Path


def pause_s(losses: int) -> float:
    """Return the seconds before a lost run is begun again, by the number of its losses, 1 or more."""
    return float(min(FIRST_PAUSE_S * 2 ** min(losses - 1, 20), LONGEST_PAUSE_S))


class Repeating:
    """Workers whose lost runs are begun again.

    Args:
        workers: The workers, which report lost runs.
        tell: A function that takes a line on each loss.
    """

    def __init__(self, workers: Workers, tell: Callable[[str], None]) -> None:
        self._workers, self._tell = workers, tell
        self._jobs: dict[int, Path] = {}
        self._losses: dict[int, int] = {}
        self._pauses: list[_Pause] = []

    def __enter__(self) -> Self:
        self._workers.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._workers.__exit__(kind, error, trace)

    @property
    def room(self) -> int:
        """The number of runs that can begin now."""
        return self._workers.room - len(self._pauses)

    @property
    def busy(self) -> int:
        """The number of runs that are trained, or begin again after a pause."""
        return self._workers.busy + len(self._pauses)

    @property
    def running(self) -> list[Running]:
        """The runs in training."""
        return self._workers.running

    def begin(self, nr: int, job: Path) -> None:
        """Give a run to a worker."""
        self._jobs[nr] = job
        self._workers.begin(nr, job)

    def wait(self, timeout: float = POLL_S) -> list[Ended]:
        """Return the runs that have ended, none of them lost; see `Workers.wait`."""
        now = time.monotonic()
        due = [pause for pause in self._pauses if pause.until <= now]
        self._pauses = [pause for pause in self._pauses if pause.until > now]
        for pause in due:
            self._workers.begin(pause.nr, pause.job)
        return [one for one in self._workers.wait(timeout) if not self._was_lost(one)]

    def _was_lost(self, ended: Ended) -> bool:
        if ended.lost is None:
            self._losses.pop(ended.nr, None)
            return False
        losses = self._losses[ended.nr] = self._losses.get(ended.nr, 0) + 1
        pause, job = pause_s(losses), self._jobs[ended.nr]
        self._tell(f"  run {job.parent.name} was lost: {ended.lost}; it goes on in {pause:.0f} s")
        self._pauses.append(_Pause(time.monotonic() + pause, ended.nr, job))
        return True

    def stop(self, number: int) -> None:
        """End all workers; see `Workers.stop`."""
        self._pauses.clear()
        self._workers.stop(number)
