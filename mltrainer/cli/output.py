"""What the commands print: text for a person, or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar


def printable(text: str) -> str:
    """Return a text's lines with nothing in them that could move a terminal's cursor or hide."""
    from mltrainer.reports.values import visible

    return "\n".join(visible(line) for line in text.split("\n"))


def warn(text: str) -> None:
    """Print text on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def emit(value: Any) -> None:
    """Print one JSON object on standard output."""
    from mltrainer.workspace import pretty_json

    sys.stdout.write(pretty_json(value).decode())


class Written(Protocol):
    """What a file or `--json` can hold."""

    def written(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        ...


AnyWritten = TypeVar("AnyWritten", bound=Written)


def show(found: AnyWritten, text: Callable[[AnyWritten], str], as_json: bool) -> int:
    """Print what a command found, as one JSON object or as the text of it for a person; return the exit code."""
    emit(found.written()) if as_json else print(printable(text(found)), flush=True)
    return 0
