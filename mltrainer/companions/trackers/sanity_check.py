"""Trial of the trackers during planning, which has no run: each proves that a run could be started in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mltrainer.companions.trackers.process import TrackerProcess, failed, installed, kill, missing, not_installed, start, way
from mltrainer.companions.trackers.program import REHEARSED, late
from mltrainer.configs.tracking import Tracking
from mltrainer.records.event import Tell
from mltrainer.records.planning import Tracker
from mltrainer.workspace import Project


class Rehearsal:
    """The trackers that planning tries beside its probes: a context manager, which leaves no process behind.

    Args:
        project: The project.
        tell: Function that takes the events.
    """

    def __init__(self, project: Project, tell: Tell) -> None:
        self._project, self._send = project, tell
        self._processes: list[TrackerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            kill(process)
            failed(process)

    def begin(self, tracking: Tracking | None) -> Callable[[], list[Tracker]]:
        """Start the trials of the enabled trackers.

        Returns:
            A function that waits until all have been tried, at most as long as their options say, reports failures, and returns
            what planning's record holds of each.
        """
        found = {name: _not_installed(name) for name in missing(tracking)}
        for name, options in installed(tracking):
            assert tracking is not None
            try:
                self._processes.append(start(self._project, REHEARSED, name, options, tracking))
            except OSError as error:
                found[name] = _failed(name, f"its process could not be started: {error.strerror}")

        def wait() -> list[Tracker]:
            begun = time.monotonic()
            while self._processes:
                # Removed only after its end: if this wait is interrupted, the end of the block kills it.
                row = _outcome(self._processes[0], begun)
                del self._processes[0]
                found[row.name] = row
            rows = [found[name] for name, _ in tracking.named()] if tracking is not None else []
            for row in rows:
                self._report(row)
            return rows

        return wait

    def _report(self, row: Tracker) -> None:
        if row.state == "not_installed":
            self._send({"event": "note", "text": not_installed(row.name)})
        elif row.state == "failed":
            text = f"{row.name} would show nothing: {row.reason}; the training is not affected; next: {row.mend}"
            self._send({"event": "note", "text": text})


def _outcome(process: TrackerProcess, begun: float) -> Tracker:
    """Return a tracker's row after the end of its process."""
    process.wait(begun)
    # Read before it is killed: else its end would be blamed on that signal.
    is_late = process.running.poll() is None
    kill(process)
    if (failure := failed(process)) is None:
        return Tracker(name=process.name, state="ready")
    return _failed(process.name, late(process.options.wait_s) if is_late else failure.why, failure.hint)


def _not_installed(name: str) -> Tracker:
    return Tracker(name=name, state="not_installed", reason=f"{name} is not installed", mend=way(name))


def _failed(name: str, reason: str, hint: str | None = None) -> Tracker:
    # An edit there, such as by --set, overrides mltrainer.yaml, where a change would have no effect.
    places = "in mltrainer.yaml, or in phases/01_planning/training_config.yaml where it was changed there or by --set"
    fix = f"fix `tracking.{name}` {places}, or take it out, then mltrainer phase run planning"
    return Tracker(name=name, state="failed", reason=reason, mend=hint or fix)
