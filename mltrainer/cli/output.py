"""The commands' output: text for a person, or one JSON object."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO, TypeVar

if TYPE_CHECKING:
    from mltrainer.errors import MltrainerError


class Output(contextlib.ExitStack):
    """How the present command prints, by its options `--json` and `--quiet`; as a context, for one command.

    Attributes:
        is_json: Whether standard output is for one JSON object; text for a person then goes to standard error.
        is_quiet: Whether text for a person is not printed.
        has_object: Whether the object was printed.
    """

    is_json = is_quiet = has_object = False

    def __enter__(self) -> Output:
        self.is_json = self.is_quiet = self.has_object = False
        return self

    def be_json(self, asked: bool) -> bool:
        """Take the value of `--json`, and return it."""
        self.is_json |= asked
        return asked

    def be_quiet(self, asked: bool) -> bool:
        """Take the value of `--quiet`, and return it; progress and warnings are dropped until the command ends."""
        if asked and not self.is_quiet:
            self.is_quiet = True
            nowhere = self.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - closed with this context
            self.enter_context(contextlib.redirect_stderr(nowhere))
        return asked


output = Output()


def printable(text: str) -> str:
    """Return a text's lines without characters that could move a terminal's cursor or hide text."""
    from mltrainer.reports.values import visible

    return "\n".join(visible(line) for line in text.split("\n"))


def say(text: str, stream: TextIO | None = None) -> None:
    """Print text for a person; no line is wider than a terminal.

    If no stream is named, it goes to standard output; with `--json` to standard error; with `--quiet` it is not printed.
    """
    from mltrainer.reports.terminal import folded

    if stream is None and output.is_quiet:
        return
    place = stream or (sys.stderr if output.is_json else sys.stdout)
    print(folded(printable(text), place), file=place, flush=True)


def warn(text: str) -> None:
    """Print text on standard error."""
    say(text, sys.stderr)


def emit(value: Any) -> None:
    """Print one JSON object on standard output."""
    from mltrainer.workspace import pretty_json

    output.has_object = True
    sys.stdout.write(pretty_json(value).decode())


def show_address(url: str, hint: str, as_json: bool) -> None:
    """Print the address of a server that begins to answer, at once: as one JSON object or as a line; the hint is for a person."""
    emit({"url": url}) if as_json else print(url)
    sys.stdout.flush()
    warn(hint)


def refuse(error: MltrainerError) -> int:
    """Print the error that ended a command and return its exit code: on standard error, and with `--json` as the object."""
    from mltrainer.redaction import redact

    warn(redact(f"error: {error}"))  # a continuous integration keeps what is printed
    emit_error(error)
    return error.exit_code


def emit_error(error: MltrainerError) -> None:
    """Print an error as the JSON object, if `--json` was given and no object was printed before."""
    from mltrainer.redaction import redacted

    if output.is_json and not output.has_object:
        emit({"error": redacted(error.written())})


class Written(Protocol):
    """A value that a file or `--json` can hold."""

    def written(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        ...


AnyWritten = TypeVar("AnyWritten", bound=Written)


def show(result: AnyWritten, text: Callable[[AnyWritten], str], as_json: bool) -> int:
    """Print a command's result, as one JSON object or as text for a person; return the exit code."""
    emit(result.written()) if as_json else say(text(result))
    return 0
