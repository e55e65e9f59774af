"""Executors start a command as a process, and engines as a job on another machine; each is one file, `local` this machine.

A job is started through its engine and followed through files in a folder that all machines share. The engine is asked only
whether it still has the job: so a lost job (its machine died, it was preempted, it left the queue) differs from one that ended.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, Protocol

from mltrainer.errors import MachineError

NOTHING, PIPE = subprocess.DEVNULL, subprocess.PIPE
RANK, WORLD_SIZE, RENDEZVOUS = "RANK", "WORLD_SIZE", "MLTRAINER_RENDEZVOUS"  # the first two are torchrun's
LOCAL_RANK, LOCAL_SIZE = "LOCAL_RANK", "LOCAL_WORLD_SIZE"  # torchrun's too: the place among the processes of one machine
LIFE = "MLTRAINER_LIFE"  # the descriptor to which one of several processes writes a sign every second, while it lives
EVENTS = "{events}"  # an argument that is replaced by the descriptor of the pipe that a process writes its events to
Sight = Literal["waiting", "running", "ended", "failed", "died", "lost"]
# How variables begin that are of this process's machine, or of a job that it runs in itself.
OF_THIS_MACHINE = (
    *("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "RAY_", "PMI_", "PMIX_"),
    *("CUDA_VISIBLE_DEVICES", "HOSTNAME", "TMPDIR"),
)
KEPT_VARIABLES = ("SLURM_CONF",)


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
        descriptors: Open files that the process inherits, each by the variable that has its number there.
        processes: The number of processes started together; each has its `RANK` and this number as `WORLD_SIZE`.
        machines: The number of machines that share the processes equally, in the order of ranks; the first is this one.
        life_sign_s: Seconds without a sign of life after which a process is taken for hung, and all processes are ended.
        forks: Whether the process forks processes itself, which inherit its imported modules.
        own_variables: Those of `environment` that the program itself needs, and not the shell's.
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
    descriptors: Mapping[str, int] = field(default_factory=dict)
    processes: int = 1
    machines: int = 1
    life_sign_s: float = 60.0
    own_variables: Mapping[str, str] = field(default_factory=dict)


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


def stack_file(meeting: Path, rank: int) -> Path:
    """Return the file into which a process writes the stacks of its threads when it is asked by SIGUSR1.

    Args:
        meeting: The folder where the processes find each other.
        rank: The process's rank.
    """
    return meeting / f"stacks-{rank}.txt"


# --- engines --------------------------------------------------------------------------------------


class EngineAwayError(MachineError):
    """An engine does not answer, or takes no job now; later it may."""


@dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command for another machine.

    Attributes:
        name: The job's name, as people see it in a queue.
        arguments: The program and its arguments, which must be there too.
        folder: The current folder, which all machines share.
        environment: The variables that the command is given.
        log: The file in a shared folder that receives the command's output.
        cores: The number of CPU cores that the command needs.
        gpus: The number of GPUs that the command needs.
    """

    name: str
    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    cores: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class Sighting:
    """A job's state, as its engine reports it.

    Attributes:
        state: `failed` ended by itself with an error; `died` used more than it may; `lost` was taken away by the engine.
        why: The state's reason in words; for a job in the queue, the reason that it waits.
        machine: The machine where the job runs or ran; empty where unknown.
    """

    state: Sight
    why: str = ""
    machine: str = ""


class Engine(Protocol):
    """Machines on which jobs run."""

    name: str

    def begin(self, command: RemoteCommand) -> str:
        """Start a command as a job and return the job's id.

        Raises:
            InputError: The engine refuses such a job, or is not here.
            EngineAwayError: It does not answer, or takes no more jobs now.
        """

    def look(self) -> Mapping[str, Sighting]:
        """Return the jobs that the engine knows, by id; one that it has begun and does not know any more is lost.

        Raises:
            EngineAwayError: It does not answer.
        """

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs, also those of an earlier process; unknown ones have ended."""

    def close(self) -> None:
        """End all jobs that this process has begun, and let go of the engine."""


def portable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are valid on another machine too."""
    return {name: value for name, value in environment.items() if name in KEPT_VARIABLES or not name.startswith(OF_THIS_MACHINE)}
