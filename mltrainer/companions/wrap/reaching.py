"""The differences between two traces that reach the training, and those that do not.

Both runs' rows stand side by side. From the first gradient (or, where no gradient differs, the first weight) that differs the way
goes back: from each tensor that differs to the operation that gave this pair of values at these addresses last, and on to what
that one was given. An operation at which the way ends is where a difference enters the training. What differs beside this way,
such as a picture for a log, is innocent.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Row = list[Any]
Pair = tuple[str, str]  # digests of a value in both runs; a tensor's with its address
WINDOW = 2000  # rows of each run that are searched for the point where the runs meet again; chosen by us
ALIKE = 3  # successive equal rows that count as meeting
COMPUTED = ("op", "module", "gradient", "weights")
TRAINED = ("gradient", "weights")
NUMBER = "a number"  # marks pairs of numbers by the rows that are given them
FRESH = "aten.lift_fresh.default"  # makes a tensor of a Python value, which no operation has given


@dataclass(frozen=True)
class Side:
    """A row of both runs, or of one.

    Attributes:
        left: The first run's row.
        right: The second run's row.
        alone: Number of the only run with the row (the other's is then its next row); None for both.
    """

    left: Row
    right: Row
    alone: int | None = None

    @property
    def is_parted(self) -> bool:
        """Whether one run alone has the row."""
        return self.alone is not None

    @property
    def differs(self) -> bool:
        """Whether another operation is computed, or the same one with another result."""
        return self.is_parted or bool(_unlike(_gives(self.left), _gives(self.right)))

    def given(self) -> list[Pair]:
        """Return the values that the operation is given and that differ."""
        return _unlike(self.left[5], self.right[5]) if self.left[1] == "op" and not self.is_parted else []

    def gives(self) -> list[Pair]:
        """Return the values that it gives and that differ; none where one run alone computes it."""
        return [] if self.is_parted else _unlike(_gives(self.left), _gives(self.right))


@dataclass(frozen=True)
class Reach:
    """The rows at which differences begin.

    Attributes:
        entries: Rows from which a difference reaches a gradient or a weight, in order; empty without such a difference.
        beside: Earlier rows whose differences do not reach the training.
        first: First row of all with a difference; None without one.
    """

    entries: tuple[Side, ...]
    beside: tuple[Side, ...]
    first: Side | None


def reach(one: Sequence[Row], other: Sequence[Row]) -> Reach:
    """Return the rows at which the differences between two traces of a process begin, by whether they reach its training."""
    rows = list(paired([row for row in one if row[1] in COMPUTED], [row for row in other if row[1] in COMPUTED]))
    end = next((n for n, row in enumerate(rows) if row.left[1] in TRAINED and not row.is_parted and row.differs), None)
    first = next((row for row in rows if row.differs), None)
    if end is None:
        return Reach((), (), first)
    ways = _Ways(rows[: end + 1])
    entries = ways.entries(end)
    reached = ways.seen | {*entries}
    begins = [n for n in range(end) if n not in reached and ways.begins(n) and rows[n].left[1] == "op"]
    return Reach(tuple(rows[n] for n in entries), tuple(rows[n] for n in begins), first)


class _Ways:
    """The ways back from row to row.

    Args:
        rows: Rows of both runs.

    Attributes:
        seen: Numbers of the rows on a way.
    """

    def __init__(self, rows: list[Side]) -> None:
        self._rows = rows
        self.seen: set[int] = set()
        self._made: dict[tuple[str, ...], list[int]] = {}  # rows by their output pairs
        self._at: dict[tuple[int, str], list[int]] = {}  # rows by run and output address
        for number, row in enumerate(rows):
            for place in _places(row):
                self._at.setdefault(place, []).append(number)
            numbers = [(*pair, NUMBER) for pair in row.given() if "@" not in pair[0]]
            for value in [*_makes(row), *numbers]:
                self._made.setdefault(value, []).append(number)

    def entries(self, end: int) -> list[int]:
        """Return the numbers of the rows at which the ways back from a row end, in their order."""
        waiting = [(end, pair) for pair in self._rows[end].gives()]
        found: set[int] = set()
        while waiting:
            at, pair = waiting.pop()
            maker = self._maker(pair, at)
            if maker is None:
                found.add(at)
                continue
            if maker in self.seen:
                continue
            self.seen.add(maker)
            given = self._rows[maker].given()
            waiting += [(maker, each) for each in given]
            if not given:
                found.add(self._first_parted(maker))
        return sorted(found)

    def begins(self, number: int) -> bool:
        """Return True if a difference begins at a row: its inputs are equal, or no earlier row gave them."""
        row = self._rows[number]
        if row.is_parted:
            return self._first_parted(number) == number
        return row.differs and all(self._maker(pair, number) is None for pair in row.given())

    def _maker(self, pair: Pair, before: int) -> int | None:
        """Return the last row before one that gives a pair; else one that, in one run alone, was the last to give at its address.

        Else one that has written in place at its addresses, maybe only a part of it. No row gives a number of Python's: of one
        that an operation of `backward` is given, it is the last that was given it, too.
        """
        if self._rows[before].left[3] == FRESH:
            return None
        if "@" not in pair[0]:
            return _last(self._made.get((*pair, NUMBER)), before)
        maker = _last(self._made.get(pair), before)
        if maker is not None:
            return maker
        last = [_last(self._at.get(place), before) for place in enumerate(_address(pair))]
        alone = [number for number in last if number is not None and self._rows[number].is_parted]
        return max(alone) if alone else _last(self._made.get(_address(pair)), before)

    def _first_parted(self, number: int) -> int:
        while number and self._rows[number].is_parted and self._rows[number - 1].is_parted:
            number -= 1
        return number


def paired(one: Sequence[Row], other: Sequence[Row]) -> Iterator[Side]:
    """Yield the rows of two runs side by side; where they take different ways, up to where they meet again, one run's alone."""
    left, right = [_key(row) for row in one], [_key(row) for row in other]
    i = j = 0
    while i < len(one) and j < len(other):
        if left[i] == right[j]:
            yield Side(one[i], other[j])
            i, j = i + 1, j + 1
            continue
        ends = i + WINDOW, j + WINDOW
        # By inputs, too, first: the same lines may run beside the training and in it.
        met = _meeting(
            [*zip(left[i : ends[0]], map(_inputs_of, one[i : ends[0]]), strict=True)],
            [*zip(right[j : ends[1]], map(_inputs_of, other[j : ends[1]]), strict=True)],
        )
        met = met or _meeting(left[i : ends[0]], right[j : ends[1]])
        if met is None:
            yield Side(one[i], other[j], alone=0)
            return
        yield from (Side(row, other[j], alone=0) for row in one[i : i + met[0]])
        yield from (Side(one[i + met[0]], row, alone=1) for row in other[j : j + met[1]])
        i, j = i + met[0], j + met[1]


def _meeting(left: Sequence[Any], right: Sequence[Any]) -> tuple[int, int] | None:
    """Return after how many rows of each run, as few as can be, both go on alike; None where they do not."""
    size = min(ALIKE, len(left), len(right))  # at the end of a run, as many as are left
    first: dict[Any, int] = {}
    for place in range(len(right) - size, -1, -1):
        first[tuple(right[place : place + size])] = place
    grams = ((place, tuple(left[place : place + size])) for place in range(len(left) - size + 1))
    return min(((place, first[gram]) for place, gram in grams if gram in first), key=sum, default=None)


def _key(row: Row) -> tuple[Any, ...]:
    """Return the key by which two rows are the same one; each run has its own folder."""
    return (*row[1:4], os.path.basename(row[7]), row[8]) if row[1] == "op" else tuple(row[1:4])


def _inputs_of(row: Row) -> tuple[str, ...]:
    return tuple(value.partition("@")[0] for value in row[5]) if row[1] == "op" else ()


def _gives(row: Row) -> list[str]:
    found: list[str] = row[6] if row[1] == "op" else row[4]
    return found


def _unlike(left: list[str], right: list[str]) -> list[Pair]:
    """Return the differing pairs of two lists; for lists of different lengths the last one, which represents all."""
    if len(left) != len(right):
        return [(left[-1] if left else "", right[-1] if right else "")]
    return [(a, b) for a, b in zip(left, right, strict=True) if a.partition("@")[0] != b.partition("@")[0]]


def _makes(row: Side) -> Iterator[Pair]:
    """Yield the pairs that an operation of both runs gives, and the addresses to which it writes in place."""
    if row.left[1] != "op" or row.is_parted:
        return
    yield from (gives := dict.fromkeys(row.gives()))
    if row.left[3].split(".")[1].endswith("_"):
        yield from {_address(pair) for pair in gives}


def _places(row: Side) -> Iterator[tuple[int, str]]:
    """Yield the addresses at which an operation gives something, with the run."""
    for run, side in enumerate((row.left, row.right)):
        if side[1] == "op" and row.alone in (None, run):
            yield from {(run, value.partition("@")[2]) for value in side[6] if "@" in value}


def _last(numbers: list[int] | None, before: int) -> int | None:
    place = bisect_left(numbers, before) if numbers else 0
    return numbers[place - 1] if numbers and place else None


def _address(pair: Pair) -> Pair:
    one, other = (value.partition("@")[2] for value in pair)
    return one, other
