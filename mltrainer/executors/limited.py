"""One command in a separate process: a question in, an answer out, within limits of time, memory and output.

The command is started by `mltrainer.executors.entering`, which sets the limits, closes it off where that is asked for, and then
becomes it. It ends with all that it started, however the wait for it ends.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

import mltrainer
from mltrainer.executors import local
from mltrainer.executors.executor import Command
from mltrainer.redaction import redact

SET_VARIABLES = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")  # where an interpreter finds its libraries


@dataclass(frozen=True)
class Limits:
    """How much a command may take.

    Attributes:
        seconds: Until it is ended, by the clock.
        memory: Bytes of address space of each of its processes; not enforced by macOS.
        output: Bytes of each file that it writes, standard output among them.
        cpu_seconds: Of computing, whole ones; None for no limit but the clock.
    """

    seconds: float
    memory: int
    output: int
    cpu_seconds: int | None = None


@dataclass(frozen=True)
class Isolation:
    """What a command that is closed off sees of the machine's files, read-only; everything else is not there.

    Attributes:
        visible: Files and folders, at their own paths.
        hidden: Folders below them that are empty for it.
    """

    visible: tuple[str, ...]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; of one that a signal ended, 128 and the signal's number.
        out: What it wrote to standard output, no more than its limit.
        err: The same of standard error.
        in_time: Whether it ended by itself.
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


def run(command: Sequence[str], question: bytes, limits: Limits, folder: Path, isolation: Isolation | None = None) -> Ended:
    """Run a command and return how it ended; nothing that it started is left.

    Args:
        command: The program and its arguments.
        question: Its standard input.
        limits: How much it may take.
        folder: Where it runs.
        isolation: What it sees, where it is to be closed off; see `mltrainer.executors.sandbox`.
    """
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as given:
        told = {
            "command": list(command),
            "environment": environment("/tmp" if isolation else home),  # noqa: S108 - the one in memory
            "parent": os.getpid(),
            "folder": str(folder),
            "limits": asdict(limits),
            "isolation": asdict(isolation) if isolation else None,
        }
        given.write(question)
        given.seek(0)
        return _ended([sys.executable, "-P", "-m", "mltrainer.executors.entering", json.dumps(told)], given, limits)


def _ended(command: list[str], given: IO[bytes], limits: Limits) -> Ended:
    """Start a command and wait for its end, or end it; files take what it says, so that it can neither block nor fill memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        variables = environment("/")
        process = local.start(
            Command(
                arguments=command, folder=Path("/"), environment=variables, input=given, output=out, errors=err, has_session=True
            )
        )
        try:
            in_time = process.wait(limits.seconds) is not None
        finally:
            process.kill()  # what left the group ends with the process that closed it off
            code = process.wait() or 0
        return Ended(code if code >= 0 else 128 - code, _read(out, limits.output), _read(err, limits.output), in_time)


def environment(home: str) -> dict[str, str]:
    """Return the variables that a command is started with: none of the shell's but where the interpreter's libraries are."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, **SET_VARIABLES, "HOME": home, "PYTHONPATH": os.pathsep.join(import_paths())}


def import_paths() -> list[str]:
    """Return the import paths of code that is not installed: mltrainer's checkout, and the folders of the shell's PYTHONPATH."""
    home = Path(mltrainer.__file__).parents[1]
    own = [] if home.name in ("site-packages", "dist-packages") else [str(home)]  # those come after Python's own library
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    return list(dict.fromkeys([*own, *named]))


def _read(file: IO[bytes], most: int) -> bytes:
    file.seek(0)
    return file.read(most + 1)
