"""A cause of a bad training: a row of a table that is found in a run, with a cure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mltrainer.diagnostics.signals import Run
from mltrainer.errors import first_names
from mltrainer.records.diagnostics import Suggestion

HELD_SKILL = 0.7  # skill that shows that weights are held on purpose


class Found(NamedTuple):
    """A cause that a run has: a sentence with its figures, and what to set, by dotted key."""

    sentence: str
    set: dict[str, Any] = {}  # noqa: RUF012 - read only


class Cause(NamedTuple):
    """A row of the table.

    Attributes:
        name: Name of the cause.
        find: Function that returns a run's evidence of it, or None.
        cure: Cure in words.
        is_wrong: Whether it is a fault even in a run that went well.
    """

    name: str
    find: Callable[[Run], Found | None]
    cure: str
    is_wrong: bool


class FoundCause(NamedTuple):
    """A cause with a run's evidence of it."""

    cause: Cause
    found: Found

    @property
    def suggestion(self) -> Suggestion:
        """Its cure, as a page suggests one."""
        return Suggestion(why=self.cause.cure, set=self.found.set)


def listed(names: Iterable[object]) -> str:
    """Return the first four of some names for a sentence, and the number of the others."""
    return first_names([*map(str, names)], 4)
