"""One command in a separate process: bytes in, bytes out, within limits of time, memory and output; closed off where asked for.

The command is started by `mltrainer.executors.entering`, which sets the limits, closes it off, and then becomes it. It ends with
all that it started, however the wait for it ends. Closed off it has no variable of the shell, no other process, no network, and
no file but what is named.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import mltrainer
from mltrainer.executors.executor import EVENTS, Command
from mltrainer.executors.local import Ended, LocalProcess, answered, start

SET_VARIABLES = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")  # where an interpreter finds its libraries
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/lib32",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/nix/store",
    "/gnu/store",
)
# What the machine's CPU can do: without it PyTorch takes the kernels that every CPU has, whose bits are others.
CPU_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")
MEMORY_HOME = "/tmp"  # noqa: S108 - a closed-off command's own, in memory
GIT_FOLDER = ".git"  # its config holds the token by which a job cloned


@dataclass(frozen=True)
class Limits:
    """The limits of a command.

    Attributes:
        seconds: Seconds by the clock after which the command is ended.
        memory: Bytes of address space of each of its processes; macOS does not enforce it.
        output: Bytes of each file that it writes, standard output among them.
        cpu_seconds: Whole seconds of CPU time; None: no limit but the clock.
    """

    seconds: float
    memory: int
    output: int
    cpu_seconds: int | None = None


PROBE = Limits(seconds=20, memory=1 << 30, output=1 << 16)


@dataclass(frozen=True)
class Isolation:
    """The machine's files that a closed-off command sees, read-only; it sees no others.

    Attributes:
        visible: Files and folders, at their own paths.
        hidden: Folders below the visible ones that are empty for the command.
        writable: Folders below the visible ones that the command may write to.
    """

    visible: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


def run(command: Sequence[str], question: bytes, limits: Limits, folder: Path, isolation: Isolation | None = None) -> Ended:
    """Run a command and return how it ended; no process that it started is left.

    Args:
        command: The program and its arguments.
        question: Its standard input.
        limits: The command's limits.
        folder: The folder where it runs.
        isolation: The files that it sees if it is to be closed off; see `mltrainer.executors.sandbox`.
    """
    # An empty home: files of libraries in the user's home decide nothing, and stay as they are.
    with tempfile.TemporaryDirectory() as home:
        variables = environment(MEMORY_HOME if isolation else home)
        # in a session, so that nothing is left of it; what left the session ends with the process that closed it off
        entering = Command(
            arguments=_entering(command, variables, limits, folder, isolation),
            folder=Path("/"),
            environment=environment("/"),
            has_session=True,
        )
        return answered(entering, question, limits.seconds, limits.output + 1)


def _entering(
    command: Sequence[str], variables: Mapping[str, str], limits: Limits, folder: Path, isolation: Isolation | None
) -> list[str]:
    """Return the program, and its arguments, that takes on limits, closes itself off, and becomes a command."""
    request = {
        "command": list(command),
        "environment": dict(variables),
        "parent": os.getpid(),
        "folder": str(folder),
        "limits": asdict(limits),
        "isolation": asdict(isolation) if isolation else None,
    }
    return [sys.executable, "-P", "-m", "mltrainer.executors.entering", json.dumps(request)]


@dataclass(frozen=True)
class ClosedOff:
    """An executor that closes off each process that it starts.

    Attributes:
        isolation: The files that the process sees.
        limits: Its limits; the time is not limited, as for any process of an executor.
    """

    isolation: Isolation
    limits: Limits

    def start(self, command: Command) -> LocalProcess:
        """Start a command, closed off; of its variables it keeps `Command.own_variables`.

        Raises:
            OSError: It cannot be started.
        """
        variables = {**environment(MEMORY_HOME), **command.own_variables}
        entering = _entering(command.arguments, variables, self.limits, command.folder, self.isolation)
        return start(replace(command, arguments=[*entering, EVENTS], folder=Path("/"), environment=environment("/")))


def environment(home: str) -> dict[str, str]:
    """Return the variables that a command is started with: of the shell's only those that locate the interpreter's libraries."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, **SET_VARIABLES, "HOME": home, "PYTHONPATH": os.pathsep.join(import_paths())}


def import_paths() -> list[str]:
    """Return the import paths of code that is not installed: mltrainer's checkout, and the folders of the shell's PYTHONPATH."""
    home = Path(mltrainer.__file__).parents[1]
    own = [] if home.name in ("site-packages", "dist-packages") else [str(home)]  # those come after Python's own library
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    return list(dict.fromkeys([*own, *named]))


# --- closed off -----------------------------------------------------------------------------------


def closed_off(command: Sequence[str], question: bytes, limits: Limits, project: Path) -> Ended:
    """Run a command that sees the interpreter's files and a project's, read-only, and nothing else of the machine.

    Args:
        command: The program and its arguments.
        question: The bytes on its standard input.
        limits: The command's limits.
        project: The project's folder, where it runs; git's own folder in it is empty for the command.
    """
    folder = project.resolve()
    isolation = Isolation((*interpreter_paths(), str(folder)), (str(folder / GIT_FOLDER),))
    return run(command, question, limits, folder, isolation)


@functools.cache
def unavailable() -> str | None:
    """Return the reason that no command can be closed off on this machine, from a trial command; None if one can be."""
    if sys.platform != "linux":
        return f"{sys.platform} has no Linux namespaces"
    ended = run([sys.executable, "-P", "-c", "pass"], b"", PROBE, Path("/"), Isolation(tuple(interpreter_paths())))
    return None if ended.code == 0 and ended.in_time else ended.last_words


def interpreter_paths() -> list[str]:
    """Return the files that a Python program needs, with the installed packages; never a folder that contains a home."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, str(Path(sys.executable).resolve().parent)}
    packages = [path for path in sys.path if os.path.isabs(path) and os.path.isdir(path)]
    homes = {Path.home(), Path.home().resolve()}
    named = [*SYSTEM, *sorted(prefixes), *packages, *import_paths()]
    paths = dict.fromkeys([*named, *map(os.path.realpath, named)])  # a link is shown as one, and what it leads to beside it
    # A prefix such as / or /home would show the homes, with the keys in them.
    open_ = [path for path in paths if not any(home.is_relative_to(path) for home in homes)]
    return [*open_, str(Path(mltrainer.__file__).parent)]
