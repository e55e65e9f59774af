"""A record's equations: rules for each of its values by the other values in it.

Someone who edits one number of a record and seals it again has every digest right. The edit is found all the same, because
hardly any number is independent: it occurs twice, follows from others, or is within bounds. Each model of `mltrainer/records/`
states that beside its fields, in `equations`: data, and a function only where a value must be computed. `faults` walks a part
and all parts within it. The rules between the records of a project are in `mltrainer/gates/equations.py`.

A term, which a value is compared with, is a number; or the path of another value; or a function of the part that states it. A
path is dotted, from that part: `*` is every entry, `-1` the last one. A value that is missing, or None, is not known and
decides nothing: a model has no confusion matrix, a program no batch size.

Recomputed numbers may differ by `ROUNDING`: other versions of Python and of libraries add in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mltrainer.workspace import is_number

Term = float | str | Callable[[Any], Any] | None
ROUNDING = 1e-9  # relative; sums of some thousand float64 differ by less, in whatever order
FLOAT32 = 1e-5  # relative; a mean over a batch in fp32, of which a unit in the last place is 1e-7


class Fault(NamedTuple):
    """A value that breaks an equation: its path, the expected value in words, and the value found."""

    field: str
    expected: str
    found: Any

    @property
    def sentence(self) -> str:
        """The fault in words."""
        return f"{self.field} is {_shown(self.found)}, expected {self.expected}"


class Equation(Protocol):
    """A rule for values of a part."""

    @property
    def field(self) -> str:
        """The path of the values."""

    def faults(self, part: Any) -> Iterator[Fault]:
        """Yield the values that break the rule."""


@dataclass(frozen=True)
class Equal:
    """A value equals another one, entry by entry; with `*` in its path, a list to compare with has one entry for each value.

    Attributes:
        field: The value's path.
        expected: The term that it must equal.
        near: The share by which two numbers may differ.
    """

    field: str
    expected: Term
    near: float = 0.0

    def faults(self, part: Any) -> Iterator[Fault]:
        """Yield the faults of the values at the path."""
        expected = _term(part, self.expected)
        for nr, (place, found) in enumerate(values(part, self.field)):
            wanted = expected[nr] if isinstance(expected, list) and "*" in self.field else expected
            if wanted is not None:
                yield from unequal(place, found, wanted, self.near)


@dataclass(frozen=True)
class Between:
    """A number is between two terms, ends included; with `*` in its path, a list as a term has one entry for each number."""

    field: str
    low: Term
    high: Term = None

    def faults(self, part: Any) -> Iterator[Fault]:
        """Yield the faults of the values at the path; values that are not finite are left to the gates' items."""
        ends = [_term(part, end) for end in (self.low, self.high)]
        for nr, (place, found) in enumerate(values(part, self.field)):
            low, high = (end[nr] if isinstance(end, list) else end for end in ends)
            is_low, is_high = _exceeds(low, found), _exceeds(found, high)
            if is_low or is_high:
                yield Fault(place, f"{'at least' if is_low else 'at most'} {_shown(low if is_low else high)}", found)


def shares(*fields: str) -> tuple[Between, ...]:
    """Return the bounds of shares, 0 and 1."""
    return tuple(Between(field, 0, 1) for field in fields)


def not_negative(*fields: str) -> tuple[Between, ...]:
    """Return the bounds of numbers that cannot be below zero: counts, spreads, sizes, times."""
    return tuple(Between(field, 0) for field in fields)


def faults(part: Any, path: str = "") -> Iterator[Fault]:
    """Yield the faults of a part and of all parts within it.

    Args:
        part: A model, or a list or a mapping of them.
        path: The part's own path, which each fault's path begins with.
    """
    for equation in getattr(part, "equations", ()):
        for fault in solved(equation, part):
            yield fault._replace(field=joined(path, fault.field))
    for name, value in _entries(part):
        if isinstance(value, Mapping | list) or hasattr(value, "equations"):
            yield from faults(value, joined(path, name))


def solved(equation: Equation, part: Any) -> list[Fault]:
    """Return the faults of one equation; the values that it needs may be nonsense themselves, such as a batch of no samples."""
    try:
        return [*equation.faults(part)]
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as hole:
        return [Fault(equation.field, f"what follows from other values, which give none ({type(hole).__name__}: {hole})", "...")]


def values(part: Any, path: str) -> list[tuple[str, Any]]:
    """Return the values at a path, each with its own path; none where nothing is there."""
    found = [("", part)]
    for name in path.split("."):
        found = [(joined(place, key), value) for place, whole in found for key, value in _step(whole, name)]
    return found


def unequal(place: str, found: Any, expected: Any, near: float = 0.0) -> Iterator[Fault]:
    """Yield the entries in which two values differ; an entry that one of them lacks differs, too."""
    found, expected = _plain(found), _plain(expected)
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in [*found, *(key for key in expected if key not in found)]:
            yield from unequal(joined(place, str(key)), found.get(key), expected.get(key), near)
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for nr, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from unequal(joined(place, str(nr)), one, other, near)
    elif found != expected and not (is_number(found) and is_number(expected) and _is_near(found, expected, near)):
        yield Fault(place, _shown(expected), found)


def joined(*names: str) -> str:
    """Return the path made of its parts."""
    return ".".join(name for name in names if name)


def _step(whole: Any, name: str) -> list[tuple[str, Any]]:
    entries = _entries(whole)
    if name == "*":
        return entries
    if name.startswith("-"):
        return entries[int(name) :][:1]
    return [(key, value) for key, value in entries if key == name]


def _entries(whole: Any) -> list[tuple[str, Any]]:
    if isinstance(whole, list | tuple):
        return [(str(nr), value) for nr, value in enumerate(whole)]
    content = whole if isinstance(whole, Mapping) else vars(whole) if hasattr(whole, "equations") else {}
    return [(str(key), value) for key, value in content.items()]


def _term(part: Any, term: Term) -> Any:
    if isinstance(term, str):
        found = values(part, term)
        return [value for _, value in found] if "*" in term else found[0][1] if found else None
    return term(part) if callable(term) else term


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _is_near(one: float, other: float, near: float) -> bool:
    return near > 0 and math.isclose(one, other, rel_tol=near, abs_tol=near)


def _exceeds(one: Any, other: Any) -> bool:
    """Return True if a number is larger than another one by more than rounding; False where one of them is not known."""
    return is_number(one) and is_number(other) and one > other and not _is_near(one, other, ROUNDING)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
