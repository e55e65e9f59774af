"""Executors start a command as a process. Each executor is one file; `local` is this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

NOTHING, PIPE = subprocess.DEVNULL, subprocess.PIPE
RANK, WORLD_SIZE, RENDEZVOUS = "RANK", "WORLD_SIZE", "MLTRAINER_RENDEZVOUS"  # the first two are torchrun's
LOCAL_RANK, LOCAL_SIZE = "LOCAL_RANK", "LOCAL_WORLD_SIZE"  # torchrun's too: the place among the processes of one machine
LIFE = "MLTRAINER_LIFE"  # the descriptor to which one of several processes writes its rank every second, while it lives
EVENTS = "{events}"  # an argument that is replaced by the descriptor of the pipe that a process writes its events to


@dataclass(frozen=True, kw_only=True)
class Command:
    """A process to start.

    Attributes:
        arguments: The program and its arguments; `EVENTS` among them becomes the descriptor of a pipe for `Process.listen`.
        folder: The process's current folder.
        environment: All variables of the process.
        input: The standard input: an open file or descriptor, `NOTHING`, or `PIPE` for `Process.send`.
        output: The standard output: an open file, a log to append to, `NOTHING`, or `PIPE` for `Process.listen`.
        errors: The standard error: an open file or descriptor; None: the same as the output.
        has_session: Whether the process leads a session: Ctrl-C in the terminal does not reach it, and it ends with its group.
        imports: Modules that the process will import; an executor may import them before it starts.
        descriptors: Open files that the process inherits, under the same numbers.
        processes: The number of processes started together; each has its `RANK` and this number as `WORLD_SIZE`.
        machines: The number of machines that share the processes equally, in the order of ranks; the first is this one.
        life_sign_s: Seconds without a sign of life after which a process is taken for hung, and all processes are ended.
        forks: Whether the process forks processes itself, which inherit its imported modules.
    """

    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    input: IO[bytes] | int = NOTHING
    output: IO[bytes] | Path | int = NOTHING
    errors: IO[bytes] | int | None = None
    has_session: bool = False
    imports: Sequence[str] = ()
    forks: bool = False
    descriptors: Sequence[int] = ()
    processes: int = 1
    machines: int = 1
    life_sign_s: float = 60.0


class Process(Protocol):
    """A process that an executor started.

    Its signals, `kill` among them, may be sent from a signal handler.
    """

    @property
    def pid(self) -> int:
        """The process's id."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, None where it still runs after `timeout` seconds."""

    def fileno(self) -> int:
        """Return the descriptor that `select` waits on until there is something to listen to."""

    def listen(self, timeout: float = 0) -> list[bytes] | None:
        """Return the lines that it has written, [] where none comes within `timeout` seconds, None at their end."""

    def send(self, data: bytes) -> None:
        """Write to its standard input; data after its end is lost."""

    def close_input(self) -> None:
        """Close its standard input."""

    def close(self) -> None:
        """Close all pipes to it; processes that it started may hold their ends open."""

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""

    def kill(self) -> None:
        """Kill it and all processes that it started."""


class Executor(Protocol):
    """A place where processes run."""

    def start(self, command: Command) -> Process:
        """Start a command.

        Raises:
            OSError: It cannot be started.
        """
