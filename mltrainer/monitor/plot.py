"""Curves in a terminal, eight dots to a character; no spike of one step is lost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

EMPTY_CELL = 0x2800  # the first of the Braille patterns, with no dot
DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # of a cell's left and right column, the lowest first
SIDES = [[sum(bit for nr, bit in enumerate(side) if dots >> nr & 1) for dots in range(16)] for side in DOTS]
MARGIN = 9  # columns of the numbers at the left

Point = tuple[float, float]
Cells = dict[tuple[int, int], tuple[int, str]]  # by row and column: dots, and the style of the curve drawn last


@dataclass(frozen=True)
class Line:
    """A curve.

    Attributes:
        points: Its points from left to right.
        style: Its colour.
    """

    points: Sequence[Point]
    style: str


@dataclass(frozen=True)
class Axis:
    """A scale from numbers to dots."""

    low: float
    high: float
    dots: int
    is_log: bool = False

    def dot(self, value: float) -> int:
        """Return the dot of a value, from 0."""
        low, high, value = (math.log10(v) if self.is_log else v for v in (self.low, self.high, value))
        return round((value - low) / ((high - low) or 1) * (self.dots - 1))

    def value(self, share: float) -> float:
        """Return the value at a share of the scale."""
        if self.is_log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + (self.high - self.low) * share


def steps_line(steps: Sequence[float], low: Sequence[float | None], high: Sequence[float | None], style: str) -> Line:
    """Return a curve of buckets that goes through the lowest and the highest value of each."""
    spans = ((x, a, b) for x, a, b in zip(steps, low, high, strict=True) if a is not None and b is not None)
    return Line([(x, y) for x, a, b in spans for y in ((a, b) if a != b else (a,))], style)


def rows_line(points: Sequence[tuple[float, float | None]], style: str) -> Line:
    """Return a curve of evaluations; those without a value are left out."""
    return Line([(x, y) for x, y in points if y is not None], style)


def positive(line: Line) -> Line:
    """Return a curve without the points that have no logarithm."""
    return Line([(x, y) for x, y in line.points if y > 0], line.style)


def drawn(lines: Sequence[Line], width: int, height: int, is_log: bool = False, reach: Point | None = None) -> Text:
    """Return curves with their scales as so many columns and lines of text.

    Args:
        lines: The curves; a later one is drawn over an earlier one.
        width: Columns, the numbers at the left among them.
        height: Lines, the numbers below among them.
        is_log: Draw values by their logarithm; those that have none are left out.
        reach: From where to where it goes from left to right; by default as far as there are points.
    """
    columns, rows = max(2, width - MARGIN), max(2, height - 1)
    lines = [positive(line) for line in lines] if is_log else lines
    points = [point for line in lines for point in line.points]
    if not points:
        return Text("nothing yet", style="dim")
    across, up = _axes(points, columns, rows, is_log, reach)
    cells: Cells = {}
    for line in lines:
        _add(cells, _columns(line.points, across, up), rows, line.style)
    return _text(cells, across, up, columns, rows)


def _axes(points: Sequence[Point], columns: int, rows: int, is_log: bool, reach: Point | None) -> tuple[Axis, Axis]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2  # of one above zero, both are above zero
    begin, end = reach or (min(xs), max(xs))
    return Axis(begin, end, 2 * columns), Axis(low, high, 4 * rows, is_log)


def _columns(points: Sequence[Point], across: Axis, up: Axis) -> dict[int, int]:
    """Return for each column of dots that a curve goes through a number whose bits are its dots, the lowest first."""
    places = [(across.dot(x), up.dot(y)) for x, y in points]
    columns = {x: 1 << y for x, y in places[:1]}
    for begin, end in itertools.pairwise(places):
        for x, low, high in _spans(*begin, *end):
            columns[x] = columns.get(x, 0) | (2 << high) - (1 << low)
    return columns


def _spans(x: int, y: int, to_x: int, to_y: int) -> Iterator[tuple[int, int, int]]:
    """Yield column, lowest and highest dot of a straight line to a dot that is no further left."""
    if to_x == x:
        yield x, min(y, to_y), max(y, to_y)
        return
    slope = (to_y - y) / (to_x - x)
    for column in range(x, to_x + 1):
        ends = (y + slope * (min(max(column + half, x), to_x) - x) for half in (-0.5, 0.5))
        low, high = sorted(map(round, ends))
        yield column, low, high


def _add(cells: Cells, columns: Mapping[int, int], rows: int, style: str) -> None:
    """Draw a curve over what is there."""
    for x, dots in columns.items():
        for row in range(rows):
            if bits := SIDES[x % 2][dots >> 4 * row & 15]:
                place = rows - 1 - row, x // 2
                cells[place] = cells.get(place, (0, ""))[0] | bits, style


def label_of(value: float) -> str:
    """Return a number in as few columns as stand beside a curve."""
    label = f"{value / 1e3:.3g}k" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    return label if len(label) <= MARGIN - 2 else f"{value:.0e}"


def _style(cell: tuple[int, str]) -> str:
    return cell[1]


def _text(cells: Cells, across: Axis, up: Axis, columns: int, rows: int) -> Text:
    text = Text()
    named = {0: 1.0, rows // 2: 1 - (rows // 2) / max(1, rows - 1), rows - 1: 0.0}
    for row in range(rows):
        label = label_of(up.value(named[row])) if row in named else ""
        text.append(f"{label:>{MARGIN - 2}} ", "dim")
        text.append("│", "dim")
        for style, some in itertools.groupby((cells.get((row, column), (0, "")) for column in range(columns)), key=_style):
            text.append("".join(chr(EMPTY_CELL + bits) if bits else " " for bits, _ in some), style)
        text.append("\n")
    first, last = f"{across.low:,.0f}", f"{across.high:,.0f}"
    text.append(" " * MARGIN + first + last.rjust(max(1, columns - len(first))), "dim")
    return text
