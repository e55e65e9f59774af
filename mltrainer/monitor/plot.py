"""Curves in a terminal, eight dots to a character; no spike of one step is lost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

EMPTY_CELL = 0x2800  # the first of the Braille patterns, with no dot
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a cell
MARGIN = 9  # columns of the numbers at the left

Point = tuple[float, float]


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
    cells: dict[tuple[int, int], tuple[int, str]] = {}
    for line in lines:
        for x, y in _dots(line.points, across, up):
            row, column = rows - 1 - y // 4, x // 2
            bits, _ = cells.get((row, column), (0, ""))
            cells[row, column] = bits | DOTS[3 - y % 4][x % 2], line.style
    return _text(cells, across, up, columns, rows)


def _axes(points: Sequence[Point], columns: int, rows: int, is_log: bool, reach: Point | None) -> tuple[Axis, Axis]:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2  # of one above zero, both are above zero
    begin, end = reach or (min(xs), max(xs))
    return Axis(begin, end, 2 * columns), Axis(low, high, 4 * rows, is_log)


def _dots(points: Sequence[Point], across: Axis, up: Axis) -> Iterator[tuple[int, int]]:
    """Yield the dots of a curve, from each point straight to the next."""
    places = [(across.dot(x), up.dot(y)) for x, y in points]
    yield from places[:1]
    for (x, y), (to_x, to_y) in itertools.pairwise(places):
        count = max(abs(to_x - x), abs(to_y - y))
        for nr in range(1, count + 1):
            yield x + round((to_x - x) * nr / count), y + round((to_y - y) * nr / count)


def label_of(value: float) -> str:
    """Return a number in as few columns as stand beside a curve."""
    label = f"{value / 1e3:.3g}k" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    return label if len(label) <= MARGIN - 2 else f"{value:.0e}"


def _text(cells: dict[tuple[int, int], tuple[int, str]], across: Axis, up: Axis, columns: int, rows: int) -> Text:
    text = Text()
    named = {0: 1.0, rows // 2: 1 - (rows // 2) / max(1, rows - 1), rows - 1: 0.0}
    for row in range(rows):
        label = label_of(up.value(named[row])) if row in named else ""
        text.append(f"{label:>{MARGIN - 2}} ", "dim")
        text.append("│", "dim")
        for column in range(columns):
            bits, style = cells.get((row, column), (0, ""))
            text.append(chr(EMPTY_CELL + bits) if bits else " ", style)
        text.append("\n")
    first, last = f"{across.low:,.0f}", f"{across.high:,.0f}"
    text.append(" " * MARGIN + first + last.rjust(max(1, columns - len(first))), "dim")
    return text
