"""A tracker's process, started beside a phase, and its last sentence once it has ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from mltrainer.configs.tracking import Tracker, Tracking
from mltrainer.trackers.program import FOLDER
from mltrainer.trackers.sink import ADAPTERS
from mltrainer.workspace import Project, redact_file

GRACE_S = 2.0  # after which a process that should have ended by itself is killed


@dataclass(frozen=True)
class TrackerProcess:
    """A tracker's process, the pipe of its sentence, and the log of its package."""

    name: str
    options: Tracker
    running: subprocess.Popen[bytes]
    words: int
    log: Path

    def wait(self, begun: float) -> None:
        """Wait for its end as long as the tracker's options allow, from a moment of the monotonic clock."""
        left = begun + self.options.wait_s + GRACE_S - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.running.wait(max(0.0, left))


def start(project: Project, phase: str, name: str, options: Tracker, tracking: Tracking) -> TrackerProcess:
    """Start a tracker's process.

    Raises:
        OSError: It cannot be started.
    """
    folder = project.state_dir / FOLDER
    log = folder / f"{name}.log"
    read_end, write_end = os.pipe()
    own = [str(project.root), phase, name, tracking.model_dump_json(), str(time.time() - 1.0), str(write_end)]
    command = [sys.executable, "-P", "-m", "mltrainer.trackers.program", *own]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(log, "wb") as file:
            running = subprocess.Popen(
                command,
                cwd=project.root,
                env={**ADAPTERS[name].variables, **os.environ},
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                pass_fds=(write_end,),
                start_new_session=True,  # Ctrl-C is the training's; the tracker then ends with what is left
            )
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return TrackerProcess(name, options, running, read_end, log)


@dataclass(frozen=True)
class Failed:
    """The reason why a tracker's process ended before its work was done, and the next step where it is known."""

    why: str
    mend: str | None


def failed(process: TrackerProcess) -> Failed | None:
    """Return the failure of a process that has ended, None where it did its work; its pipes are closed, its log is redacted."""
    _close(process)
    why, _, mend = _sentence(process).partition("\n")
    os.close(process.words)
    _clean(process.log)
    if process.running.returncode == 0:
        return None
    return Failed(why or f"its process ended with {_end(process.running.returncode)}", mend or None)


def missing(tracking: Tracking | None) -> list[str]:
    """Return the trackers that are on, and whose package is not installed."""
    return [name for name, _ in tracking.named() if not ADAPTERS[name].is_installed] if tracking is not None else []


def installed(tracking: Tracking | None) -> list[tuple[str, Tracker]]:
    """Return the trackers that are on and installed, with their options."""
    return [row for row in tracking.named() if ADAPTERS[row[0]].is_installed] if tracking is not None else []


def way(name: str) -> str:
    """Return the command that installs a tracker."""
    return f"pip install 'mltrainer[{name}]'"


def not_installed(name: str) -> str:
    """Return the sentence about a tracker that is on and not installed."""
    return f"{name} is not installed, so that it shows nothing: {way(name)}"


def let_end(process: TrackerProcess, word: bytes) -> None:
    """Close a process's standard input, with a last word; it may have died."""
    assert process.running.stdin is not None
    with contextlib.suppress(OSError):
        process.running.stdin.write(word)
    _close(process)


def _close(process: TrackerProcess) -> None:
    assert process.running.stdin is not None
    with contextlib.suppress(OSError):
        process.running.stdin.close()


def kill(process: TrackerProcess) -> None:
    """End a process, and those that its package started."""
    if process.running.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.running.pid, signal.SIGKILL)
        process.running.wait()


def _sentence(process: TrackerProcess) -> str:
    """Return the sentence of a process that has ended; processes of its package may still hold the pipe open."""
    is_there = select.select([process.words], [], [], 0)[0]
    return os.read(process.words, 2000).decode(errors="replace") if is_there else ""


def _end(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _clean(log: Path) -> None:
    """Remove secrets that a tracker's package printed; no log is left where it printed nothing."""
    with contextlib.suppress(OSError):
        if not redact_file(log):
            log.unlink()
