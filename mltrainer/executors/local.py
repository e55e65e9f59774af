"""Processes of this machine."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from mltrainer.executors.executor import EVENTS, PIPE, Command
from mltrainer.executors.process_tree import descendants

READ_BYTES = 1 << 16
SHORTEST_DELAY_S, LONGEST_DELAY_S = 0.001, 0.01  # between two checks whether a process has ended


def start(command: Command) -> LocalProcess:
    """Start a command on this machine.

    Raises:
        OSError: It cannot be started.
    """
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


def _popen(command: Command, write_end: int | None) -> Popen:
    with _open(command.output, write_end) as output:
        return Popen(
            [str(write_end) if argument == EVENTS else argument for argument in command.arguments],
            cwd=command.folder,
            env=command.environment,
            stdin=command.input,
            stdout=output,
            stderr=command.errors or output,
            pass_fds=[*command.descriptors, *([write_end] if EVENTS in command.arguments and write_end is not None else [])],
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


class Popen(subprocess.Popen[bytes]):
    """A process that is waited for without the lock of `subprocess`: Ctrl-C can leave that locked, and the next wait hangs."""

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        late, delay = time.monotonic() + (timeout or 0), SHORTEST_DELAY_S
        while (code := self._reap(0 if timeout is None else os.WNOHANG)) is None:
            if (left := late - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(min(delay, left))
            delay = min(2 * delay, LONGEST_DELAY_S)
        return code

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # it has ended, and Ctrl-C came before its status was kept
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Child(Protocol):
    """The part of `subprocess.Popen` that a process needs."""

    pid: int
    stdin: IO[bytes] | None

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """

    def send_signal(self, number: int, /) -> None:
        """Send a signal, unless it has ended."""


class LocalProcess:
    """A process of this machine; see `executors.executor.Process`.

    Args:
        child: The process.
        read_end: The pipe that the process writes lines to; None: it writes none.
        has_session: Whether the process leads a session, and so a group.
    """

    def __init__(self, child: Child, read_end: int | None, has_session: bool) -> None:
        self._child, self._read_end, self._has_session = child, read_end, has_session
        self._rest = b""

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._child.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, None where it still runs after `timeout` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout)
        return None

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
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.write(data)
            self._child.stdin.flush()

    def close_input(self) -> None:
        """Close its standard input."""
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # the rest was not written before it ended
            self._child.stdin.close()

    def close(self) -> None:
        """Close all pipes to it; processes that it started may hold their ends open."""
        if self._child.stdin is not None:
            self.close_input()
        if self._read_end is not None:
            os.close(self._read_end)
            self._read_end = None

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

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
