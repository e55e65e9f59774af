"""Follows a project for all viewers: one thread reads the files, the others wait for changes."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from mltrainer.companions.monitor.run import Seen, WatchedRun
from mltrainer.companions.monitor.scene import Scene
from mltrainer.companions.monitor.shown import News, ProjectShown
from mltrainer.errors import InputError, MltrainerError
from mltrainer.follow.steps import StepsView
from mltrainer.runs.find import run_ids
from mltrainer.workspace import Project

POLL_S = 0.02  # between checks of the size and time of the followed runs' files
LOOK_S = 0.5  # between looks at the project: runs, gates, a study
UNREADABLE = (
    MltrainerError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
)  # raised by removed or damaged files, which are read again later
MOST_RUNS = 12  # runs side by side


class Follower:
    """The present view of a project; a context manager that follows it.

    Args:
        project: The project; nothing in it is written.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._scene = Scene(project)
        self._shown: ProjectShown | None = None
        self._runs: dict[str, WatchedRun] = {}
        self._watchers: Counter[str] = Counter()
        self._changed = threading.Condition(threading.RLock())
        self._version = 0
        self._end = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._poll, self._look)]

    def __enter__(self) -> Self:
        import numpy  # noqa: F401 - imported now, so that no viewer waits for it

        self._shown = self._scene.look()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Set before the notification: a woken thread reads it.
        self._end.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # --- following ---

    def _poll(self) -> None:
        while not self._end.wait(POLL_S):
            with self._changed, contextlib.suppress(*UNREADABLE):
                if sum(run.poll() for run in self._runs.values()):
                    self._tell()

    def _look(self) -> None:
        while not self._end.wait(LOOK_S):
            with contextlib.suppress(*UNREADABLE):
                # Outside the lock: gates may take seconds, while curves continue.
                shown = self._scene.look()
                with self._changed:
                    is_other = sum(run.look() for run in self._runs.values()) or shown != self._shown
                    self._shown = shown
                    if is_other:
                        self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()

    # --- looking on ---

    @property
    def shown(self) -> ProjectShown:
        """The project, available from the start of the block."""
        assert self._shown is not None
        return self._shown

    def wait(self, version: int, seconds: float) -> int:
        """Wait until the version is newer than the given one, or the time is over; return the version."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self._end.is_set(), seconds)
            return self._version

    @property
    def has_ended(self) -> bool:
        """Whether following has ended."""
        return self._end.is_set()

    def check(self, names: Sequence[str]) -> None:
        """Refuse unknown runs, or too many of them.

        Raises:
            InputError: A name is not a run's, or there are too many.
        """
        known = run_ids(self._project)
        if len(names) > MOST_RUNS or any(name not in known for name in names):
            raise InputError(
                expected=f"at most {MOST_RUNS} runs of this project",
                found=", ".join(names)[:200],
                hint="mltrainer runs list",
            )

    @contextlib.contextmanager
    def watching(self, names: Sequence[str]) -> Iterator[list[WatchedRun]]:
        """Yield runs that are followed for the length of a block.

        Raises:
            InputError: There is no such run, or there are too many.
        """
        self.check(names)
        with self._changed:
            runs = [self._begin(name) for name in names]
        try:
            yield runs
        finally:
            with self._changed:
                self._watchers.subtract(names)
                self._runs = {name: run for name, run in self._runs.items() if self._watchers[name] > 0}

    @contextlib.contextmanager
    def reading(self, names: Sequence[str]) -> Iterator[None]:
        """Read and follow runs for the length of a block, which does not wait for the reading."""
        is_over = threading.Event()

        def follow() -> None:
            with contextlib.suppress(*UNREADABLE), self.watching(names):
                is_over.wait()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()

    def _begin(self, name: str) -> WatchedRun:
        self._watchers[name] += 1
        if name not in self._runs:
            run = WatchedRun(self._project, name)
            run.poll()
            run.look()
            self._runs[name] = run
        return self._runs[name]

    def news(self, runs: Sequence[WatchedRun], seen: dict[str, Seen]) -> list[News]:
        """Return the updates of some runs since they were last seen, and mark them as seen.

        Args:
            runs: The runs, which are followed.
            seen: State already seen, by run; updated.
        """
        with self._changed:
            updates = [new for run in runs if (new := run.since(seen.get(run.id))) is not None]
            seen.update({run.id: run.seen for run in runs})
            return updates

    def steps(self, name: str, first: int | None, last: int | None, points: int) -> StepsView:
        """Return the steps of a run in a range, thinned to a number of points."""
        with self.watching([name]) as (run,), self._changed:
            return run.steps_view(first, last, points)
