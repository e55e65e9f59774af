"""A row for each comparison: its mean as a dot, its interval as a line, and each seed's value, beside a line at zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.figures.axes import Scale, drawable, linear
from mltrainer.figures.canvas import GREY, INK, WIDTH, Box, dot_path, empty, label, line, picture, rulers
from mltrainer.reports.values import cut, visible

ROW, LEFT = 34.0, 222.0
_NO_SCALE = Scale(0.0, 1.0, ())


@dataclass(frozen=True)
class Compared:
    """One row.

    Attributes:
        name: The row's name.
        points: The value of each seed.
        mean: The mean of the values; None where there is none.
        ends: The ends of the mean's interval; None where there are too few points.
        colour: The colour of mean and interval.
        note: A text in place of a row that cannot be drawn; else empty.
    """

    name: str
    points: Sequence[float]
    mean: float | None
    ends: tuple[float, float] | None
    colour: str
    note: str = ""


def forest(title: str, description: str, rows: Sequence[Compared], *, unit: str) -> str:
    """Return a chart of the rows over a common axis.

    Args:
        title: The chart's subject.
        description: The chart's content in words, for readers who cannot see it.
        rows: The rows from top to bottom.
        unit: The unit or name of the axis.
    """
    values = [value for row in rows for value in (*row.points, *(row.ends or ())) if drawable(value)]
    if not values:
        return empty(title, "No finite value was measured.")
    top = 48.0
    # With zero on the axis: each row is compared with the line there.
    box = Box(LEFT, top, WIDTH - 24, top + ROW * len(rows), linear([*values, 0.0]), _NO_SCALE)
    zero = box.at(0.0, 0.0)[0]
    parts = [*rulers(box), line(zero, top, zero, box.bottom, GREY, ' stroke-dasharray="4 3"')]
    for nr, row in enumerate(rows):
        parts += _row(box, row, top + ROW * (nr + 0.5))
    parts.append(label((box.left + box.right) / 2, box.bottom + 36, unit, anchor="middle", fill=GREY))
    return picture(title, description, box.bottom + 50, parts)


def _row(box: Box, row: Compared, y: float) -> list[str]:
    parts = [label(LEFT - 12, y + 4, cut(visible(row.name), 32), anchor="end", fill=INK)]
    if row.note:
        return [*parts, label(box.left + 8, y + 4, cut(visible(row.note), 60), fill=GREY)]
    places = [(box.at(value, 0.0)[0], y + 9) for value in row.points if drawable(value)]
    parts += [dot_path([place], GREY, 5, ' opacity=".35"') for place in places]  # one by one: darker where several overlap
    if row.ends is not None:
        left, right = (box.at(end, 0.0)[0] for end in row.ends)
        parts.append(line(left, y, right, y, row.colour, ' stroke-width="2.2"'))
        parts += [line(x, y - 5, x, y + 5, row.colour, ' stroke-width="2.2"') for x in (left, right)]
    if row.mean is not None:
        parts.append(dot_path([(box.at(row.mean, 0.0)[0], y)], row.colour, 9))
    return parts
