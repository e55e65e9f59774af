"""What every tool's program shares: its job, its events, its signals, and errors as the workflow shows them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError, MachineError, MltrainerError, StoppedError
from mltrainer.reproducibility.secrets import redact
from mltrainer.tasks.user_code import user_frame
from mltrainer.workspace import MACHINE_ERRNOS, NAME_ERRNOS, plain, read_json, write_atomic

CRASH_FILE = "crash.txt"


class Events:
    """Sends events to the workflow as JSON lines; when nobody listens any more, the tool must stop.

    Args:
        descriptor: The pipe's write end, or None to print to standard output.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self.listener_gone = False

    def send(self, event: str, **values: Any) -> None:
        """Send one event."""
        line = json.dumps(plain({"event": event, **values})).encode() + b"\n"
        if self._descriptor is None:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            return
        try:
            os.write(self._descriptor, line)
        except BrokenPipeError:
            self.listener_gone = True


class StopSignals:
    """Remembers the first SIGINT or SIGTERM, so that the loop can save and end."""

    def __init__(self, events: Events) -> None:
        self._caught: str | None = None
        self._events = events
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._catch)

    def _catch(self, number: int, _frame: Any) -> None:
        self._caught = self._caught or signal.Signals(number).name

    def __call__(self) -> str | None:
        """Return the signal's name, or None; a workflow that has gone counts as SIGTERM."""
        return "SIGTERM" if self._events.listener_gone else self._caught


def run_program(work: Callable[[dict[str, Any], Events], int]) -> None:
    """Run a tool's work on the job that the command line names, and exit with its code.

    Args:
        work: Takes the job and the events; returns the exit code.
    """
    job_file = Path(sys.argv[1])
    events = Events(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    root = Path.cwd()
    try:
        code = work(read_json(job_file), events)
    except MltrainerError as error:
        code = _report(events, error)
    except KeyboardInterrupt:
        code = _report(events, StoppedError("interrupted before the first step", exit_code=130))
    except SystemExit as error:
        code = _report(events, InputError(f"your code called sys.exit({error.code!r})", mend="raise an exception instead"))
    except Exception as error:
        code = _report(events, explained(error, root, job_file.parent))
    sys.exit(code)


def _report(events: Events, error: MltrainerError) -> int:
    where, mend = (redact(text) if text else None for text in (error.where, error.mend))
    events.send("error", exit_code=error.exit_code, message=redact(error.message), where=where, mend=mend)
    return error.exit_code


def explained(error: Exception, root: Path, folder: Path) -> MltrainerError:
    """Return the machine's error, the user's (their code is on the stack) or ours, with the traceback saved.

    Args:
        error: What was raised.
        root: The project's folder.
        folder: The job's folder, where the traceback goes.
    """
    if isinstance(error, OSError) and error.errno in MACHINE_ERRNOS:
        return MachineError(error.strerror or str(error), where=str(error.filename or ""))
    text = redact("".join(traceback.format_exception(error)))
    with contextlib.suppress(MltrainerError):
        write_atomic(folder / CRASH_FILE, text.encode())
    frame = user_frame(error, root)
    if frame is not None:
        return InputError(
            f"{type(error).__name__}: {error}",
            where=frame,
            mend=f"mend your code; the traceback is in {folder.name}/{CRASH_FILE}",
        )
    if isinstance(error, OSError) and error.errno in NAME_ERRNOS:
        return InputError(error.strerror or str(error), where=str(error.filename or "")[:200])
    return MltrainerError(
        f"{type(error).__name__}: {error}", where=str(folder / CRASH_FILE), mend="report this fault with that file"
    )
