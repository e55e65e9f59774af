"""A tracker's process, started beside a phase, and its last sentence once it has ended."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mltrainer.companions.trackers.program import FOLDER
from mltrainer.companions.trackers.sink import ADAPTERS, adapter
from mltrainer.configs.tracking import Tracker, Tracking
from mltrainer.executors import local
from mltrainer.executors.executor import EVENTS, PIPE, Command, Process
from mltrainer.workspace import Project, redact_file

GRACE_S = 2.0  # time after which a process that should have ended is killed


@dataclass(frozen=True)
class TrackerProcess:
    """A tracker's process, and the log of its package."""

    name: str
    options: Tracker
    running: Process
    log: Path

    def wait(self, begun: float) -> None:
        """Wait for its end as long as the tracker's options allow, from a moment of the monotonic clock."""
        self.running.wait(max(0.0, begun + self.options.wait_s + GRACE_S - time.monotonic()))


def start(project: Project, phase: str, name: str, options: Tracker, tracking: Tracking) -> TrackerProcess:
    """Start a tracker's process.

    Raises:
        OSError: The process cannot be started.
    """
    folder = project.state_dir / FOLDER
    log = folder / f"{name}.log"
    # A second early, as files' times come from a coarser clock and may be before this moment.
    own = [str(project.root), phase, name, tracking.model_dump_json(), str(time.time() - 1.0), EVENTS]
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    command = Command(
        arguments=[sys.executable, "-P", "-m", "mltrainer.companions.trackers.program", *own],
        folder=project.root,
        environment={**adapter(name).variables, **os.environ},
        input=PIPE,
        output=log,
        has_session=True,  # Ctrl-C is the training's; the tracker then ends with what is left
    )
    return TrackerProcess(name, options, local.start(command), log)


@dataclass(frozen=True)
class Failed:
    """The reason why a tracker's process ended before its work was done, and the next step where it is known."""

    why: str
    hint: str | None


def failed(process: TrackerProcess) -> Failed | None:
    """Return the failure of a process that has ended, None after success; its pipes are closed, its log is redacted."""
    why, hint, *_ = [*_sentence(process), "", ""]
    process.running.close()
    _clean(process.log)
    code = process.running.poll()
    if not code:
        return None
    return Failed(why or f"its process ended with {_end(code)}", hint or None)


def missing(tracking: Tracking | None) -> list[str]:
    """Return the trackers that are on, and whose package is not installed."""
    return [name for name, _ in tracking.named() if not adapter(name).is_installed] if tracking is not None else []


def installed(tracking: Tracking | None) -> list[tuple[str, Tracker]]:
    """Return the trackers that are on and installed, with their options."""
    return [row for row in tracking.named() if adapter(row[0]).is_installed] if tracking is not None else []


def way(name: str) -> str:
    """Return the command that installs a tracker."""
    return f"pip install 'mltrainer[{name}]'" if name in ADAPTERS else f"pip install the package that adds the tracker {name}"


def not_installed(name: str) -> str:
    """Return the sentence about a tracker that is on and not installed."""
    return f"{name} is not installed, so that it shows nothing: {way(name)}"


def let_end(process: TrackerProcess, word: bytes) -> None:
    """Close a process's standard input, with a last word; it may have died."""
    process.running.send(word)
    process.running.close_input()


def kill(process: TrackerProcess) -> None:
    """End a process, and those that its package started."""
    if process.running.poll() is None:
        process.running.kill()
        process.running.wait()


def _sentence(process: TrackerProcess) -> list[str]:
    """Return the lines of a process that has ended; processes of its package may still hold the pipe open."""
    return [line.decode(errors="replace") for line in process.running.listen() or []]


def _end(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _clean(log: Path) -> None:
    """Remove secrets that a tracker's package printed; an empty log is removed."""
    with contextlib.suppress(OSError):
        if not redact_file(log):
            log.unlink()
