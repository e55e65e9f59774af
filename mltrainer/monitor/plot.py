"""Curves in a terminal, eight dots to a character; no spike of one step is lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from mltrainer.figures.axes import Scale, close
from mltrainer.figures.series import Point

EMPTY_CELL = 0x2800  # the first of the Braille patterns, with no dot
DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # of a cell's left and right column, the lowest first
SIDES = [[sum(bit for nr, bit in enumerate(side) if dots >> nr & 1) for dots in range(16)] for side in DOTS]
MARGIN = 9  # columns of the numbers at the left

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
    shown = [([(x, y) for x, y in line.points if y > 0 or not is_log], line.style) for line in lines]
    points = [point for some, _ in shown for point in some]
    if not points:
        return Text("nothing yet", style="dim")
    across = Scale(*(reach or (min(x for x, _ in points), max(x for x, _ in points))), ())
    up = close([y for _, y in points], is_log)
    cells: Cells = {}
    for some, style in shown:
        places = [(_dot(across, x, 2 * columns), _dot(up, y, 4 * rows)) for x, y in some]
        _add(cells, _columns(places), rows, style)
    return _text(cells, across, up, columns, rows)


def _dot(scale: Scale, value: float, dots: int) -> int:
    """Return the dot of a value, from 0, of so many."""
    return round(scale.place(value) * (dots - 1))


def _columns(places: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return for each column of dots that a curve goes through a number whose bits are its dots, the lowest first."""
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


def _text(cells: Cells, across: Scale, up: Scale, columns: int, rows: int) -> Text:
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
