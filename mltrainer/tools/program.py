"""The common part of every tool's program: its job, its events, its signals, and its errors in the workflow's form."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from mltrainer.errors import (
    InputError,
    MachineError,
    MltrainerError,
    interrupted,
    is_out_of_memory,
    notes_of,
    out_of_memory,
    raise_terminated,
)
from mltrainer.executors.executor import RANK, RENDEZVOUS
from mltrainer.observe import renamed_folder
from mltrainer.observe.disturbances import Perturbations, chosen
from mltrainer.observe.process import Process, Settings
from mltrainer.records.job import JobBase, TrainingJob, parsed
from mltrainer.redaction import redacted
from mltrainer.tasks.user_code import is_of_layers, user_frame
from mltrainer.workspace import NAME_ERRNOS, is_of_machine, locked, plain, read_json, write_json, write_text

CRASH_FILE = "crash.txt"
ORPHAN_S = 30.0  # chosen by us: a tool whose workflow was killed saves its state after its step, and ends
FEWER_LOADERS = "lower loader.workers, loader.prefetch or batch_size: each process holds batches in memory; or enlarge /dev/shm"
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}  # of a tool that a signal stopped


class Events:
    """Sends events to the workflow as JSON lines; `listener_gone` is True when the workflow has died and the tool must stop.

    Args:
        descriptor: The pipe's write end, or None to print to standard output.
        rank: The rank of this process, from 0; a process with a rank above 0 sends errors only.
    """

    def __init__(self, descriptor: int | None, rank: int = 0) -> None:
        self._descriptor, self._rank = descriptor, rank
        self._parent = os.getppid()
        self._broken = False

    @property
    def listener_gone(self) -> bool:
        """True once the workflow has died: the parent's death shows at once, a broken pipe only at the next event."""
        return self._broken or (self._descriptor is not None and os.getppid() != self._parent)

    def send(self, event: str, **values: Any) -> None:
        """Send one event without secrets: its text is shown and stored."""
        if self._rank and event != "error":
            return
        line = json.dumps(redacted(plain({"event": event, **values}))).encode() + b"\n"
        if self._descriptor is None:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            return
        self._write(self._descriptor, line)

    def _write(self, descriptor: int, line: bytes) -> None:
        try:
            os.write(descriptor, line)
        except BrokenPipeError:
            self._broken = True


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
        """Return the signal's name, or None; "SIGTERM" once the workflow is gone."""
        return "SIGTERM" if self._events.listener_gone else self._caught


@contextlib.contextmanager
def noting_errors(path: Path) -> Iterator[None]:
    """Write the error that ends a block to a file, which marks the run as failed, not as waiting."""
    # An earlier attempt's error would mark the run as failed while it trains.
    path.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        with contextlib.suppress(MltrainerError):
            write_json(path, {"error": str(error)})
        raise


@contextlib.contextmanager
def run_lock(job: JobBase, root: Path, events: Events, stop: Callable[[], str | None]) -> Iterator[None]:
    """Hold the lock of a job's run; wait for a tool that still holds it because its workflow was killed.

    Raises:
        InUseError: Another process held the lock for `ORPHAN_S` seconds, or a signal arrived while waiting.
    """
    begun: list[float] = []

    def may_wait() -> bool:
        if not begun:
            begun.append(time.monotonic())
            events.send("note", text=f"run {job.run} is in use by a process whose command has died: waiting for its end")
        return stop() is None and time.monotonic() - begun[0] < ORPHAN_S

    with locked(root / job.folder / "lock", f"run {job.run}", may_wait):
        yield


def own_rank() -> int:
    """Return this process's rank among those that train together; 0 where it trains alone."""
    return int(os.environ[RANK]) if RENDEZVOUS in os.environ else 0


def run_program(work: Callable[[Any, Path, Events], object]) -> None:
    """Run a tool's work on the job that the command line names, and exit with its code.

    Args:
        work: A function of the job, the project's folder and the events, which raises an exception on failure.
    """
    job_file = Path(sys.argv[1])
    events = Events(int(sys.argv[2]) if len(sys.argv) > 2 else None, own_rank())
    # When the workflow has died, a write must raise an error, after which state is saved, instead of ending this process at once.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # `start` removed the handlers during its imports: from here on there is something to save.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, raise_terminated)
    error = attempt(_disturbed(work), job_file.absolute(), events)
    if error is None:
        events.send("done")
    sys.exit(_report(events, error) if error else 0)


def _disturbed(work: Callable[[Any, Path, Events], object]) -> Callable[[Any, Path, Events], object]:
    """Return a tool's work that first applies the job's disturbances to this process: changes that must not affect the result."""

    def begun(job: JobBase, root: Path, events: Events) -> object:
        # A user's program is disturbed in its own process, by the code that starts it.
        if isinstance(job, TrainingJob) and job.disturbances and not job.config.task.is_opaque:
            _disturb(chosen(job.disturbances), root)
        return work(job, root, events)

    return begun


def _disturb(changes: Perturbations, root: Path) -> None:
    process = Process(Settings())
    for name in changes.modules:
        importlib.import_module(f"mltrainer.observe.{name}").begin(process)
    if changes.folder:
        renamed_folder.begin(root)


def attempt(work: Callable[[Any, Path, Events], object], job_file: Path, events: Events) -> MltrainerError | None:
    """Do a tool's work on the job in a file; return its error in the workflow's form, or None.

    Args:
        work: The tool's work, as in `run_program`.
        job_file: The job's file, `ROOT/FOLDER/job.json`: ROOT is the project's folder, FOLDER the job's `folder`.
        events: The destination of progress.
    """
    root = job_file.parent
    try:
        job = parsed(read_json(job_file), str(job_file))
        root = job_file.parents[len(PurePath(job.folder).parts)]
        work(job, root, events)
    except MltrainerError as error:
        return error
    except KeyboardInterrupt as error:
        return interrupted(error)
    # Passed on, it would end the process with the user's exit code, such as 0, as if the work were done.
    except SystemExit as error:
        return InputError(f"your code called sys.exit({error.code!r})", hint="raise an exception instead")
    except Exception as error:
        return explained(error, root, job_file.parent)
    return None


def _report(events: Events, error: MltrainerError) -> int:
    said = {"message": error.message, "where": error.where, "mend": error.hint, "faults": error.faults}
    events.send("error", exit_code=error.exit_code, **said)
    return error.exit_code


def explained(error: Exception, root: Path, folder: Path) -> MltrainerError:
    """Return the error for an exception: the machine's, the user's (their code is on the stack) or ours; save the traceback.

    Args:
        error: The exception.
        root: The project's folder.
        folder: The job's folder, where the traceback goes.
    """
    # Before the search for the user's lines: any code can run out of memory or disk.
    if is_out_of_memory(error):
        return out_of_memory(error)
    if is_of_machine(error):
        where, hint = str(error.filename or folder), "check the disk and its permissions, then type the same command again"
        return MachineError(error.strerror or str(error), where=where, hint=hint)
    if isinstance(error, RuntimeError) and "DataLoader worker" in str(error) and _was_killed(str(error)):
        return MachineError(f"a process that loads your samples was killed: {error}", where="loader.workers", hint=FEWER_LOADERS)
    if isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
        return InputError(
            f"a process that loads your samples ended: {error}",
            where="loader.workers",
            hint="mltrainer phase run planning --set loader.workers=0 loads in one process, where your code's own error shows",
        )
    if is_of_one_sample(error):
        return InputError(
            f"a batch of one sample, which your model's normalization cannot train on: {error}",
            where="batch_size",
            hint="take a batch_size above 1 that leaves no single sample over at an epoch's end",
        )
    with contextlib.suppress(MltrainerError):
        write_text(folder / CRASH_FILE, "".join(traceback.format_exception(error)))
    frame = user_frame(error, root)
    if frame is not None:
        return InputError(
            f"{type(error).__name__}: {error}{notes_of(error)}",
            where=frame,
            hint=f"fix your code; the traceback is in {_place(folder, root)}",
        )
    if is_of_layers(error):
        return InputError(
            f"the model does not fit the data: forward raised {type(error).__name__}: {error}",
            hint="change the model or the data, such as ids for which an embedding has no row; "
            f"the traceback is in {_place(folder, root)}",
        )
    if isinstance(error, OSError) and error.errno in NAME_ERRNOS:
        hint = "name a path that this system can hold"
        return InputError(error.strerror or str(error), where=str(error.filename or "")[:200], hint=hint)
    return MltrainerError(f"{type(error).__name__}: {error}", where=_place(folder, root), hint="report this fault with that file")


def is_of_one_sample(error: BaseException) -> bool:
    """Return True if PyTorch's normalization refused a batch of one sample in training."""
    return isinstance(error, ValueError) and "Expected more than 1 value per channel when training" in str(error)


def _was_killed(text: str) -> bool:
    """Return True if torch reports that the machine killed a loader's process: no memory left, or no room in /dev/shm."""
    return any(f"killed by signal: {name}" in text for name in ("Killed", "Bus error"))


def _place(folder: Path, root: Path) -> str:
    """Return the path of a job's traceback for messages: relative to the project if it is inside it."""
    path = folder / CRASH_FILE
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
