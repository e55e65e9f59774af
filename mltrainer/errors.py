"""The errors that a user can see, each with the exit code of the command-line contract.

A message has the place, the expected and the found value and, in ``hint``, the next step.
"""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

MOST_NAMES = 12  # that a message lists
MOST_LETTERS = 80  # of an unknown name
T = TypeVar("T")


class FaultAt(NamedTuple):
    """A fault: its place, what was expected there and what was found; None for what is not known separately."""

    where: str | None
    expected: str | None = None
    found: str | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.expected} -> {self.found}"


class MltrainerError(Exception):
    """Base of every error that is reported without a traceback.

    Args:
        message: What is wrong, in a sentence; what was expected and found is added to it.
        expected: What was expected; None where it is not one value.
        found: What was found; None where nothing was.
        where: The file, line and key, or the command, that the message is about; None where there is none.
        hint: The next step: a command to type, or a change; None where there is none.
        faults: The faults that the message lists, each with its place, what was expected and what was found, for programs; by
            default one of `expected` and `found`, and none where the message alone says it.
    """

    exit_code = 3

    def __init__(
        self,
        message: str = "",
        *,
        expected: object = None,
        found: object = None,
        where: str | None = None,
        hint: str | None = None,
        faults: Iterable[FaultAt] = (),
    ) -> None:
        both = {"expected": expected, "found": found}
        compared = {name: str(value) for name, value in both.items() if value is not None}
        said = ", ".join(f"{name} {text}" for name, text in compared.items())
        self.message = ": ".join(filter(None, (message, said)))
        super().__init__(self.message)
        self.where = where
        self.hint = hint
        self.faults = tuple(faults) or ((FaultAt(where, **compared),) if compared else ())

    @classmethod
    def unknown(
        cls,
        kind: str,
        name: object,
        known: Iterable[object],
        *,
        of: str = "",
        where: str | None = None,
        hint: str | None = None,
    ) -> Self:
        """Return the error for a name that is not known; its message has the nearest name, or else the known ones.

        Args:
            kind: What has such names, in words: `phase`.
            name: The unknown name, or number.
            known: The known names.
            of: The rest of the sentence: `of the task`.
            where: As of every error.
            hint: As of every error.
        """
        names = [*map(str, known)]
        listed = first_names(names)
        # Of a number no other is meant.
        near = did_you_mean(name, names, 0.6) if isinstance(name, str) and not name.isdecimal() else ""
        instead = near or f"; there {'is only' if len(names) == 1 else 'are'} {listed or 'none'}"
        fault = FaultAt(where, f"one of {listed}" if names else None, repr(name))
        said = " ".join(filter(None, (f"there is no {kind} {name!r:.{MOST_LETTERS}}", of)))
        return cls(f"{said}{instead}", where=where, hint=hint, faults=[fault])

    @property
    def placed_message(self) -> str:
        """The message behind its place, without the next step."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def __str__(self) -> str:
        return f"{self.placed_message}\n  next: {self.hint}" if self.hint else self.placed_message

    def written(self) -> dict[str, Any]:
        """Return the error as `--json` prints it; of several faults, `faults` has each."""
        only = self.faults[0] if len(self.faults) == 1 else FaultAt(None)
        return {
            **only._replace(where=self.where or only.where)._asdict(),
            "message": self.message,
            "next": self.hint,
            "exit_code": self.exit_code,
            "faults": [fault._asdict() for fault in self.faults],
        }

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows in place of a traceback: the command line's text."""
        return [f"error: {self}"]


class InputError(MltrainerError):
    """A mistake in the input: config, data, code or an argument's value."""

    exit_code = 1


class UsageError(MltrainerError):
    """Wrong usage of the command line."""

    exit_code = 2


class GateError(MltrainerError):
    """A gate does not hold, or a file differs from its record."""

    exit_code = 4


class DifferenceError(MltrainerError):
    """A reproduction or an environment differs from the record."""

    exit_code = 5


class InUseError(MltrainerError):
    """Another process works on the same project or run."""

    exit_code = 6


class MachineError(MltrainerError):
    """The machine failed: no space, no permission, an I/O error."""

    exit_code = 7


class OutOfMemoryError(MachineError):
    """Memory ran out, of this machine or of its GPU."""


class KilledError(MachineError):
    """The system killed a tool, most often because memory ran out."""


class StoppedError(MltrainerError):
    """The user or the system asked the program to stop; ``exit_code`` is 130 or 143."""

    def __init__(self, message: str, *, exit_code: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class Terminated(KeyboardInterrupt):
    """SIGTERM as an exception: half-written files are removed as after a Ctrl-C, and nothing treats it as a failure."""


def raise_terminated(_number: int, _frame: object) -> None:
    """Raise `Terminated`; the handler of SIGTERM in mltrainer's own programs."""
    raise Terminated


def interrupted(error: BaseException | None, hint: str = "type the same command again to go on") -> StoppedError:
    """Return the error to raise after a Ctrl-C, or after SIGTERM where the error or its cause is `Terminated`."""
    by_term = isinstance(error, Terminated) or isinstance(getattr(error, "__cause__", None), Terminated)
    code, what = (143, "terminated") if by_term else (130, "interrupted")
    return StoppedError(what, exit_code=code, hint=hint)


def interruption_of(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the Ctrl-C or SIGTERM that an error came of, such as a library's own error about what it broke off; else None."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def error_for_exit(code: int, message: str) -> MltrainerError:
    """Return the error for a tool's exit code."""
    for kind in (InputError, GateError, DifferenceError, InUseError, MachineError):
        if kind.exit_code == code:
            return kind(message)
    if code in (130, 143):
        return StoppedError(message, exit_code=code)
    return MltrainerError(message)


# Texts in torch's RuntimeErrors where memory ran out: on a CPU, on a GPU, and within the GPU's libraries.
_OUT_OF_MEMORY = (
    *("not enough memory", "can't allocate memory", "out of memory", "std::bad_alloc"),
    *("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUSOLVER_STATUS_ALLOC_FAILED"),
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for an out-of-memory error of Python, a GPU, the system, or torch on a CPU, which only its message shows."""
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _OUT_OF_MEMORY)


LESS_MEMORY = (
    "lower batch_size (accumulate makes up for it, and `mltrainer plan` says by how much) or the model's size, or stop other "
    "programs here, then type it again"
)


def out_of_memory(error: BaseException, place: str = "", hint: str = LESS_MEMORY) -> OutOfMemoryError:
    """Return the error to raise when memory ran out; `place`: the part of the work, such as ` in step 3`."""
    return OutOfMemoryError(f"out of memory{place}: {str(error) or type(error).__name__}"[:500], hint=hint)


# Signals by which the machine ends a process, and their reasons; any other is a fault of a program. Windows has none of them.
_OF_THE_MACHINE = {
    "SIGKILL": "the system does that where memory runs out",
    "SIGBUS": "a file or shared memory (/dev/shm) that it had mapped ran out of room",
    "SIGXFSZ": "a file grew beyond the limit that is set here (ulimit -f)",
    "SIGXCPU": "it took more processor time than is allowed here (ulimit -t)",
}


def ended_with(code: int) -> str:
    """Return the end of a process in words: its exit code or signal; a shell's code for a signal is its number plus 128."""
    number = signal_of(code)
    return f"signal {number} ({signal.Signals(number).name})" if number else f"exit code {code}"


def signal_of(code: int) -> int | None:
    """Return the signal of an exit code; None where it is of none."""
    number = -code if code < 0 else code - 128
    return number if number in set(signal.Signals) else None


def killed(code: int) -> str | None:
    """Return the machine's reason for ending a process, for a sentence; None for any other exit code."""
    number = signal_of(code)
    return _OF_THE_MACHINE.get(signal.Signals(number).name) if number else None


def first_names(names: Sequence[str], most: int = MOST_NAMES, separator: str = ", ") -> str:
    """Return the first of some names for a message, and the number of the others."""
    more = f"{separator.strip(', ')} and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def first_repeated(names: Sequence[T]) -> T | None:
    """Return the first name that is there more than once; None where each is there once."""
    return next((name for name in names if names.count(name) > 1), None)


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return a question with the name that is nearest to a wrong one, as the end of a message; empty where none is near.

    Names that only go on where the wrong one ends come before others that are nearer: `H100 SXM` for `H100`, not `H200`.

    Args:
        name: The wrong name.
        known: The names that there are.
        cutoff: The least likeness of a near one, from 0 to 1, as `difflib` measures it.
    """
    import difflib  # here, because names are rarely mistyped

    alike = {one.lower(): one for one in known}  # `h100` is not similar to any name in capitals
    close = difflib.get_close_matches(name.lower(), alike, n=len(alike) or 1, cutoff=cutoff)
    longer = [one for one in close if one.startswith(f"{name.lower()} ")]
    return f"; did you mean {' or '.join(repr(alike[one]) for one in longer or close[:1])}?" if close else ""


def notes_of(error: BaseException) -> str:
    """Return the notes of an exception, as the end of a message."""
    return "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
