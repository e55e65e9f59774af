"""Processes of this machine: started, or run to their end, or killed with all processes that they started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from mltrainer.errors import MachineError
from mltrainer.executors.executor import EVENTS, PIPE, Command
from mltrainer.executors.process_tree import descendants
from mltrainer.redaction import redact

READ_BYTES = 1 << 16
UNKNOWN = 255  # the exit code of a process whose own one is lost
KILLED = 128 + 9  # as a shell reports SIGKILL, which Windows lacks
SHORTEST_DELAY_S, LONGEST_DELAY_S = 0.001, 0.01  # between two checks whether a process has ended


def start(command: Command) -> LocalProcess:
    """Start a command on this machine.

    Raises:
        OSError: It cannot be started.
        MachineError: This is Windows, whose processes inherit no pipes by number.
    """
    if os.name == "nt":
        raise MachineError("mltrainer starts no programs on Windows", hint="use it in WSL 2, which is a Linux")
    if EVENTS not in command.arguments and command.output != PIPE:
        return LocalProcess(_popen(command, None), None, command.has_session)
    read_end, write_end = os.pipe()
    try:
        return LocalProcess(_popen(command, write_end), read_end, command.has_session)
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)  # the process's copy is then the only one, so that the pipe ends with it


def _popen(command: Command, write_end: int | None) -> subprocess.Popen[bytes]:
    events = [write_end] if EVENTS in command.arguments and write_end is not None else []
    with _open(command.output, write_end) as output:
        return subprocess.Popen(
            [str(write_end) if argument == EVENTS else argument for argument in command.arguments],
            cwd=command.folder,
            env={**command.environment, **{name: str(number) for name, number in command.descriptors.items()}},
            stdin=command.input,
            stdout=output,
            stderr=command.errors or output,
            pass_fds=[*command.descriptors.values(), *events],
            start_new_session=command.has_session,
        )


@contextlib.contextmanager
def _open(output: IO[bytes] | Path | int, write_end: int | None) -> Iterator[IO[bytes] | int | None]:
    """Yield a process's standard output; its copy of a log stays open when ours is closed."""
    if isinstance(output, Path):
        with open(output, "ab") as log:
            yield log
    else:
        yield write_end if output == PIPE else output


class PipedProcess(ABC):
    """A process with pipes to it; see `executors.executor.Process`.

    Attributes:
        is_abandoned: Whether what it was forked from was killed, which kills the process too: its exit code is then unknown.

    Args:
        pid: The process's id.
        stdin: The file by which it is written to; None: it has no input from here.
        read_end: The pipe that the process writes lines to; None: it writes none.
        has_session: Whether the process leads a session, and so a group.
    """

    is_abandoned = False

    def __init__(self, pid: int, stdin: IO[bytes] | None, read_end: int | None, has_session: bool = False) -> None:
        self.pid, self._stdin, self._read_end, self._has_session = pid, stdin, read_end, has_session
        self._rest = b""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, negative for a signal; None where it still runs after `timeout` seconds."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self.wait(0)

    def fileno(self) -> int:
        """Return the descriptor of its lines."""
        assert self._read_end is not None
        return self._read_end

    def listen(self, timeout: float = 0) -> list[bytes] | None:
        """Return the lines that it has written, [] where none comes within `timeout` seconds, None at their end."""
        while select.select([self], [], [], timeout)[0]:
            data = os.read(self.fileno(), READ_BYTES)
            if not data:
                return None
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return lines
        return []

    def send(self, data: bytes) -> None:
        """Write to its standard input; data after its end is lost."""
        assert self._stdin is not None
        with contextlib.suppress(OSError):
            self._stdin.write(data)
            self._stdin.flush()

    def close_input(self) -> None:
        """Close its standard input."""
        assert self._stdin is not None
        with contextlib.suppress(OSError):  # the rest was not written before it ended
            self._stdin.close()

    def close(self) -> None:
        """Close all pipes to it; processes that it started may hold their ends open."""
        if self._stdin is not None:
            self.close_input()
        if self._read_end is not None:
            os.close(self._read_end)
            self._read_end = None

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it and all processes that it started; where it leads a session, the rest of that session too."""
        if self._has_session:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            return
        # Those below it first, while it lives: afterwards they have another parent, and nothing leads to them.
        for pid in descendants(self.pid) if self.poll() is None else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)


class LocalProcess(PipedProcess):
    """A process that this one has started.

    It is waited for without the lock of `subprocess`: Ctrl-C can leave that locked, and the next wait hangs.
    """

    def __init__(self, popen: subprocess.Popen[bytes], read_end: int | None, has_session: bool) -> None:
        super().__init__(popen.pid, popen.stdin, read_end, has_session)
        self._popen = popen

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, negative for a signal; None where it still runs after `timeout` seconds."""
        late, delay = time.monotonic() + (timeout or 0), SHORTEST_DELAY_S
        while (code := self._reap(0 if timeout is None else os.WNOHANG)) is None:
            if (left := late - time.monotonic()) <= 0:
                return None
            time.sleep(min(delay, left))
            delay = min(2 * delay, LONGEST_DELAY_S)
        return code

    def _reap(self, options: int) -> int | None:
        if (kept := self._popen.returncode) is not None:
            return kept
        try:
            pid, status = os.waitpid(self.pid, options)
            code = os.waitstatus_to_exitcode(status) if pid else None
        except ChildProcessError:
            # It has ended, and its status is lost: Ctrl-C came before it was kept, or SIGCHLD is ignored.
            code = UNKNOWN
        kept = self._popen.returncode  # by a signal's handler, which asks too
        self._popen.returncode = code if kept is None else kept
        return self._popen.returncode


# --- commands run to their end --------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """The end of a command.

    Attributes:
        code: The exit code; of a command that a signal ended, 128 plus the signal's number.
        out: The standard output, up to the limit.
        err: The standard error, up to the limit.
        in_time: Whether the command ended by itself.
    """

    code: int
    out: bytes = field(repr=False)
    err: bytes = field(repr=False)
    in_time: bool = True

    @property
    def last_words(self) -> str:
        """The last line on standard error, without secrets."""
        lines = redact(self.err.decode("utf-8", errors="replace")).strip().splitlines()
        return lines[-1] if lines else "no message"


def run(command: Command, timeout: float | None = None) -> int | None:
    """Run a command and return its exit code, negative for a signal; None where it was killed after `timeout` seconds.

    It is killed with all that it started, also where the wait for it ends by Ctrl-C. Processes that it left running
    when it ended by itself go on, unless it has a session.

    Raises:
        OSError: It cannot be started.
    """
    process = start(command)
    try:
        return process.wait(timeout)
    finally:
        # Also after it has ended by itself: in its session something of it may still run.
        process.kill()
        process.wait()


def answered(command: Command, question: bytes = b"", timeout: float | None = None, most: int = -1) -> Ended:
    """Run a command as `run` does, and return how it ended.

    Files take its output, so that it can neither block nor fill memory.

    Args:
        command: The command; its input and outputs are set here.
        question: The bytes on its standard input.
        timeout: Seconds until it is killed.
        most: The most bytes of each output that are returned; -1: all.

    Raises:
        OSError: It cannot be started.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(question)
        given.seek(0)
        code = run(replace(command, input=given, output=out, errors=err), timeout)
        exit_code = KILLED if code is None else code if code >= 0 else 128 - code
        return Ended(exit_code, _read(out, most), _read(err, most), in_time=code is not None)


def _read(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most)
