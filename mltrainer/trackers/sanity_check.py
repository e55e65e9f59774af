"""Tries the trackers beside planning, which has no run to show: each proves that a run could be begun in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from mltrainer.configs.tracking import Tracking
from mltrainer.trackers.beside import Tell
from mltrainer.trackers.process import TrackerProcess, failed, installed, kill, missing, not_installed, start, way
from mltrainer.trackers.program import REHEARSED, late
from mltrainer.workspace import Project

Row = dict[str, Any]


class Rehearsal:
    """The trackers that planning tries beside its probes: a context manager, which leaves no process behind.

    Args:
        project: The project.
        tell: Takes the events.
    """

    def __init__(self, project: Project, tell: Tell) -> None:
        self._project, self._tell = project, tell
        self._processes: list[TrackerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            kill(process)
            failed(process)

    def begin(self, tracking: Tracking | None) -> Callable[[], list[Row]]:
        """Start to try the trackers that are on.

        Returns:
            A function that waits until all have been tried, at most as long as their options say, reports failures, and returns
            a row for each tracker: `name`, `state` ("ready", "failed" or "not_installed"), `reason` and `mend`.
        """
        found = {name: _row(name, "not_installed", f"{name} is not installed", way(name)) for name in missing(tracking)}
        for name, options in installed(tracking):
            assert tracking is not None
            try:
                self._processes.append(start(self._project, REHEARSED, name, options, tracking))
            except OSError as error:
                found[name] = _row(name, "failed", f"its process could not be started: {error.strerror}", None)

        def wait() -> list[Row]:
            begun = time.monotonic()
            while self._processes:
                row = _tried(self._processes[0], begun)
                del self._processes[0]
                found[row["name"]] = row
            rows = [found[name] for name, _ in tracking.named()] if tracking is not None else []
            for row in rows:
                self._tell_of(row)
            return rows

        return wait

    def _tell_of(self, row: Row) -> None:
        if row["state"] == "not_installed":
            self._tell({"event": "note", "text": not_installed(row["name"])})
        elif row["state"] == "failed":
            text = f"{row['name']} would show nothing: {row['reason']}; training is as without it; next: {row['mend']}"
            self._tell({"event": "note", "text": text})


def _tried(process: TrackerProcess, begun: float) -> Row:
    """Return the row of a tracker that is being tried, once its process has ended, or was ended."""
    process.wait(begun)
    is_late = process.running.poll() is None
    kill(process)
    if (found := failed(process)) is None:
        return _row(process.name, "ready", None, None)
    return _row(process.name, "failed", late(process.options.wait_s) if is_late else found.why, found.mend)


def _row(name: str, state: str, reason: str | None, mend: str | None) -> Row:
    """Return a tracker's row in planning's record; a failed one always has a next step."""
    if state == "failed" and mend is None:
        mend = f"fix `tracking.{name}` in mltrainer.yaml, or take it out, then mltrainer phase run planning"
    return {"name": name, "state": state, "reason": reason, "mend": mend}
