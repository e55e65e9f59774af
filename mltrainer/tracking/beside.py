"""Starts the trackers' processes beside a phase, and tells what they could not do; the phase never waits for one but at its end.

A tracker reads the files of a run, so that training knows nothing of it. One that fails, hangs or is killed is told as a note.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mltrainer.configs.tracking import Tracker, Tracking
from mltrainer.reproducibility.secrets import redact
from mltrainer.tracking.program import DONE, FOLDER
from mltrainer.tracking.sink import ADAPTERS
from mltrainer.workspace import Project, write_atomic

Event = dict[str, Any]
Tell = Callable[[Event], None]
GRACE_S = 2.0  # after which a process that should have ended by itself is killed


@dataclass(frozen=True)
class _Process:
    """A tracker's process, where its sentence comes from, and what its package prints."""

    name: str
    options: Tracker
    running: subprocess.Popen[bytes]
    words: int
    log: Path


class Beside:
    """The trackers of a phase: a context manager, whose `tell` passes events on and tells of trackers that have died.

    Args:
        project: The project.
        phase: The phase.
        tracking: The trackers, or None.
        tell: Takes the events.
    """

    def __init__(self, project: Project, phase: str, tracking: Tracking | None, tell: Tell) -> None:
        self._project, self._phase, self._tracking, self._tell = project, phase, tracking, tell
        self._processes: list[_Process] = []
        self._one_at_a_time = threading.Lock()  # events come from threads, too

    def __enter__(self) -> Self:
        for name in missing(self._tracking):
            self._note(f"{name} is not installed, so that it shows nothing: pip install 'mltrainer[{name}]'")
        if self._tracking is not None and self._phase != "planning":  # which has no run
            for name, options in self._tracking.named():
                if ADAPTERS[name].is_installed:
                    self._start(name, options, self._tracking)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        begun = time.monotonic()
        try:
            for process in self._processes:
                _let_end(process, DONE if kind is None else b"")
            for process in self._processes:
                self._wait(process, begun)
        finally:
            for process in self._processes:
                _kill(process)
        self._look()

    def tell(self, event: Event) -> None:
        """Pass an event on; where a tracker has died meanwhile, tell so."""
        self._tell(event)
        self._look()

    def _note(self, text: str) -> None:
        self._tell({"event": "note", "text": text})

    def _start(self, name: str, options: Tracker, tracking: Tracking) -> None:
        folder = self._project.state_dir / FOLDER
        log = folder / f"{name}.log"
        read_end, write_end = os.pipe()
        own = [str(self._project.root), self._phase, name, tracking.model_dump_json(), str(time.time() - 1.0), str(write_end)]
        command = [sys.executable, "-P", "-m", "mltrainer.tracking.program", *own]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with open(log, "wb") as file:
                running = subprocess.Popen(
                    command,
                    cwd=self._project.root,
                    env={**ADAPTERS[name].variables, **os.environ},
                    stdin=subprocess.PIPE,
                    stdout=file,
                    stderr=file,
                    pass_fds=(write_end,),
                    start_new_session=True,  # Ctrl-C is the training's; the tracker then ends with what is left
                )
        except OSError as error:
            os.close(read_end)
            self._note(f"{name} could not be started: {error.strerror}")
        else:
            self._processes.append(_Process(name, options, running, read_end, log))
        finally:
            os.close(write_end)

    def _look(self) -> None:
        """Tell of processes that have ended, each once."""
        with self._one_at_a_time:
            ended = [process for process in self._processes if process.running.poll() is not None]
            self._processes = [process for process in self._processes if process not in ended]
        for process in ended:
            _close(process)
            why = _sentence(process) or f"its process ended with {_end(process.running.returncode)}"
            os.close(process.words)
            _redact(process.log)
            if process.running.returncode != 0:
                log = f" ({self._project.relative(process.log)})" if process.log.exists() else ""
                self._note(f"{process.name} was not sent everything: {why}; training is as without it{log}")

    def _wait(self, process: _Process, begun: float) -> None:
        left = begun + process.options.wait_s + GRACE_S - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.running.wait(max(0.0, left))


def missing(tracking: Tracking | None) -> list[str]:
    """Return the trackers that are on, and whose package is not installed."""
    return [name for name, _ in tracking.named() if not ADAPTERS[name].is_installed] if tracking is not None else []


def _let_end(process: _Process, word: bytes) -> None:
    """Close a process's standard input, with a last word; it may have died."""
    assert process.running.stdin is not None
    with contextlib.suppress(OSError):
        process.running.stdin.write(word)
    _close(process)


def _close(process: _Process) -> None:
    assert process.running.stdin is not None
    with contextlib.suppress(OSError):
        process.running.stdin.close()


def _kill(process: _Process) -> None:
    """End a process, and what its package started."""
    if process.running.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.running.pid, signal.SIGKILL)
        process.running.wait()


def _sentence(process: _Process) -> str:
    """Return what a process that has ended said; what its package started may still hold the pipe open."""
    is_there = select.select([process.words], [], [], 0)[0]
    return os.read(process.words, 1000).decode(errors="replace") if is_there else ""


def _end(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _redact(log: Path) -> None:
    """Remove secrets that a tracker's package printed; no log is left where it printed nothing."""
    with contextlib.suppress(OSError):
        text = log.read_text("utf-8", errors="replace")
        if (clean := redact(text)) != text:
            write_atomic(log, clean.encode())
        if not text:
            log.unlink()
