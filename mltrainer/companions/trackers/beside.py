"""Starts the trackers' processes beside a phase, and reports their failures; the phase waits for them only at its end.

A tracker reads the files of a run, so that training knows nothing of it. A note reports one that fails, hangs or is killed.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from mltrainer.companions.trackers.process import TrackerProcess, failed, installed, kill, let_end, missing, not_installed, start
from mltrainer.companions.trackers.program import DONE
from mltrainer.configs.tracking import Tracking
from mltrainer.records.event import Event, Tell
from mltrainer.workspace import Project


class Beside:
    """The trackers of a phase: a context manager, whose `tell` passes events on and reports trackers that have died.

    Args:
        project: The project.
        phase: The phase.
        tracking: The trackers, or None.
        tell: Function that takes the events.
    """

    def __init__(self, project: Project, phase: str, tracking: Tracking | None, tell: Tell) -> None:
        self._project, self._phase, self._tracking, self._send = project, phase, tracking, tell
        self._processes: list[TrackerProcess] = []
        self._one_at_a_time = threading.Lock()  # events come from threads, too

    def __enter__(self) -> Self:
        for name in missing(self._tracking):
            self._note(not_installed(name))
        for name, options in installed(self._tracking):
            assert self._tracking is not None
            try:
                self._processes.append(start(self._project, self._phase, name, options, self._tracking))
            except OSError as error:
                self._note(f"{name} could not be started: {error.strerror}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        begun = time.monotonic()
        try:
            for process in self._processes:  # all at once, before the first wait: they end side by side
                let_end(process, DONE if kind is None else b"")
            for process in self._processes:
                process.wait(begun)
        finally:
            for process in self._processes:
                kill(process)
        self._look()

    def tell(self, event: Event) -> None:
        """Pass an event on; report a tracker that has died meanwhile."""
        self._send(event)
        self._look()

    def _note(self, text: str) -> None:
        self._send({"event": "note", "text": text})

    def _look(self) -> None:
        """Report the processes that have failed, each once."""
        with self._one_at_a_time:
            ended = [process for process in self._processes if process.running.poll() is not None]
            self._processes = [process for process in self._processes if process not in ended]
        for process in ended:
            if (failure := failed(process)) is not None:
                log = f" ({self._project.relative(process.log)})" if process.log.exists() else ""
                self._note(f"{process.name} did not get everything: {failure.why}; the training is not affected{log}")
