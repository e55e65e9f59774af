"""The commands' output: text for a person, or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TextIO, TypeVar


def printable(text: str) -> str:
    """Return a text's lines without characters that could move a terminal's cursor or hide text."""
    from mltrainer.reports.values import visible

    return "\n".join(visible(line) for line in text.split("\n"))


def say(text: str, stream: TextIO | None = None) -> None:
    """Print text for a person, on standard output if no other stream is named; no line is wider than a terminal."""
    from mltrainer.reports.terminal import folded

    print(folded(printable(text), stream or sys.stdout), file=stream or sys.stdout, flush=True)


def warn(text: str) -> None:
    """Print text on standard error."""
    say(text, sys.stderr)


def emit(value: Any) -> None:
    """Print one JSON object on standard output."""
    from mltrainer.workspace import pretty_json

    sys.stdout.write(pretty_json(value).decode())


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
