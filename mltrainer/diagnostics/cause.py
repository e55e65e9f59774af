"""What a cause of a bad training is: a row of a table, found in a run, with a cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mltrainer.diagnostics.signals import Run
from mltrainer.records.diagnostics import Suggestion

HELD_SKILL = 0.7  # of weights that are held on purpose as much is learned


class Found(NamedTuple):
    """A cause that a run has: a sentence with its figures, and what to set, by dotted key."""

    sentence: str
    set: dict[str, Any] = {}  # noqa: RUF012 - read only


class Cause(NamedTuple):
    """A row of the table.

    Attributes:
        name: What it is called.
        find: Returns what a run shows of it, or None.
        cure: What to do, in words.
        is_wrong: Whether it is wrong in itself, however well the run went.
    """

    name: str
    find: Callable[[Run], Found | None]
    cure: str
    is_wrong: bool


class Told(NamedTuple):
    """A cause with what a run shows of it."""

    cause: Cause
    found: Found

    @property
    def suggestion(self) -> Suggestion:
        """Its cure, as a page suggests one."""
        return Suggestion(why=self.cause.cure, set=self.found.set)


def listed(names: list[str], most: int = 4) -> str:
    """Return some names for a sentence, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
