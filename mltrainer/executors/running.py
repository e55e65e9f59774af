"""A command run to its end, with its input and output, or killed with all processes that it started."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from typing import IO

from mltrainer.executors import local
from mltrainer.executors.executor import Command
from mltrainer.redaction import redact

KILLED = 128 + 9


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
    process = local.start(command)
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
