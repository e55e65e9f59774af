"""What an executor is: something that starts a command as a process. Each executor is one file; `local` is this machine."""

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
EVENTS = "{events}"  # an argument that stands for the descriptor of the pipe that a process writes its events to


@dataclass(frozen=True, kw_only=True)
class Command:
    """A process to start.

    Attributes:
        arguments: The program and its arguments; `EVENTS` among them becomes the descriptor of a pipe for `Process.listen`.
        folder: Its current folder.
        environment: All of its variables.
        input: Its standard input: an open file or descriptor, `NOTHING`, or `PIPE` for `Process.send`.
        output: Its standard output: an open file, a log to append to, `NOTHING`, or `PIPE` for `Process.listen`.
        errors: Its standard error, an open file or descriptor; None: with the output.
        has_session: Whether it has a session of its own: Ctrl-C in the terminal does not reach it, and it ends with its group.
        imports: Modules that it will import, which an executor may have imported before it starts.
        descriptors: Open files that it has too, under the same numbers.
        processes: How many of it are started, to work together: each has its `RANK` and their number, `WORLD_SIZE`.
        machines: How many machines share these, each as many, in the order of ranks; the first is this one.
        life_sign_s: One of several that showed no life for more seconds than this is taken for hung, and all are ended.
        forks: Whether it starts such processes itself; they find imported what it does.
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
        """Its number."""

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Return its exit code, None where it still runs after `timeout` seconds."""

    def fileno(self) -> int:
        """Return the descriptor that `select` waits on until there is something to listen to."""

    def listen(self, timeout: float = 0) -> list[bytes] | None:
        """Return the lines that it has written, [] where none comes within `timeout` seconds, None at their end."""

    def send(self, data: bytes) -> None:
        """Write to its standard input; what it is not there to read is lost."""

    def close_input(self) -> None:
        """Close its standard input."""

    def close(self) -> None:
        """Close all that leads to it; others that it started may hold their ends open."""

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""

    def kill(self) -> None:
        """Kill it and all that it started."""


class Executor(Protocol):
    """A place where processes run."""

    def start(self, command: Command) -> Process:
        """Start a command.

        Raises:
            OSError: It cannot be started.
        """
