"""A row for each comparison: its mean as a dot, its interval as a line, and what each seed gave, beside a line at zero."""

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
        name: Of what is compared.
        points: What each seed gave.
        mean: Their mean; None where there is none.
        ends: Of the mean's interval; None where there are too few points.
        colour: Of mean and interval.
        note: In place of what cannot be drawn.
    """

    name: str
    points: Sequence[float]
    mean: float | None
    ends: tuple[float, float] | None
    colour: str
    note: str = ""


def forest(title: str, description: str, rows: Sequence[Compared], *, unit: str) -> str:
    """Return the rows over a common axis.

    Args:
        title: What it shows.
        description: What a reader who cannot see it should know.
        rows: From top to bottom.
        unit: What the axis measures.
    """
    values = [value for row in rows for value in (*row.points, *(row.ends or ())) if drawable(value)]
    if not values:
        return empty(title, "No finite value was measured.")
    top = 48.0
    # With zero on the axis, as the line there is what every row is read against.
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
    parts += [dot_path([place], GREY, 5, ' opacity=".35"') for place in places]  # one by one: where some lie, it is darker
    if row.ends is not None:
        left, right = (box.at(end, 0.0)[0] for end in row.ends)
        parts.append(line(left, y, right, y, row.colour, ' stroke-width="2.2"'))
        parts += [line(x, y - 5, x, y + 5, row.colour, ' stroke-width="2.2"') for x in (left, right)]
    if row.mean is not None:
        parts.append(dot_path([(box.at(row.mean, 0.0)[0], y)], row.colour, 9))
    return parts
