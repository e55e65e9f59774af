"""Small figures as SVG: text is text, no scripts, no fonts, the same bytes on every machine.

Each has its own white background with round corners, so that it is readable in GitHub's light and dark mode, a title and a
description for screen readers, and colours that colour-blind people can distinguish (Okabe and Ito, 2008; cividis,
Nunez, Anderton and Renslow, 2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mltrainer.figures.axes import Scale, drawable, linear, logarithmic
from mltrainer.figures.canvas import (
    BLUE,
    FAULT,
    GREY,
    VERMILLION,
    WIDTH,
    Box,
    Mark,
    colour_of,
    cross,
    dot_path,
    empty,
    grid,
    label,
    legend_of,
    line,
    picture,
    pixels,
    stroke_of,
    width_of,
)
from mltrainer.figures.heat import confusion_matrix as confusion_matrix
from mltrainer.figures.heat import heat_map as heat_map
from mltrainer.figures.series import Point, Series, segments, thin
from mltrainer.reports.values import cut, number, visible

# --- line chart ---------------------------------------------------------------------------------

HEIGHT = 330.0  # pixels


def line_chart(
    title: str,
    description: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    marks: Sequence[Mark] = (),
    include: Sequence[float] = (),
) -> str:
    """Return a chart of lines over a common axis.

    Args:
        title: The chart's subject.
        description: The chart's content in words, for readers who cannot see it.
        series: The lines; values that are not finite leave gaps, marked by crosses at the top.
        x_label: The name and unit of the horizontal axis.
        y_label: The name and unit of the vertical axis.
        log_x: Whether the horizontal axis is logarithmic; every x must then be positive.
        log_y: Whether the vertical axis is logarithmic; values that are not positive are then gaps, too.
        marks: The marked places on the horizontal axis.
        include: The values that the vertical axis must reach, such as 0.
    """
    series = [Series(s.name, thin(s.points), s.dashed, s.dots) for s in series]
    x_values = [x for s in series for x, _ in s.points] + [mark.x for mark in marks]
    y_values = [y for s in series for _, y in s.points if drawable(y) and (y > 0 or not log_y)]
    if not y_values:
        return empty(title, "No finite value was measured.")
    y_scale = logarithmic([*y_values, *(v for v in include if v > 0)]) if log_y else linear([*y_values, *include])
    gaps = sorted({x for s in series for x, y in s.points if not y_scale.has(y)})
    legend, legend_end = legend_of(
        series, ("not finite or not positive" if log_y else "not finite (NaN or infinite)") if gaps else ""
    )
    left = 44 + max(width_of(name) for _, name in y_scale.ticks)
    top = legend_end + (16 + 15 * len(marks) if marks else 22 if gaps else 16)
    box = Box(left, top, WIDTH - 22, HEIGHT - 48, logarithmic(x_values) if log_x else _x_scale(x_values), y_scale)
    lines = [part for nr, s in enumerate(series) for part in _series_marks(box, s, colour_of(nr))]
    # At most about 40: a run that is NaN to its end would be a wall of crosses.
    crosses = [_gap(box, x) for x in thin([(x, 0.0) for x in gaps], 40)]
    return picture(title, description, HEIGHT, [*legend, *grid(box, x_label, y_label), *_marks(box, marks), *lines, *crosses])


def _x_scale(values: Sequence[float]) -> Scale:
    scale = linear(values, 8, tight=True)
    # Steps and epochs are whole: there is nothing at half of one.
    if all(value == int(value) for value in values):
        whole = tuple((tick, number(int(tick))) for tick, _ in scale.ticks if tick == int(tick))
        return Scale(scale.low, scale.high, whole)
    return scale


def _series_marks(box: Box, series: Series, colour: str) -> Iterable[str]:
    if series.dots:
        yield dot_path([box.at(x, y) for x, y in series.points if box.y.has(y)], colour, 7)
        return
    for stretch in segments(series.points, box.y.has):
        places = [box.at(x, y) for x, y in stretch]
        if len(places) == 1:
            yield dot_path(places, colour, 6)
        else:
            path = "L".join(f"{pixels(x)} {pixels(y)}" for x, y in places)
            yield f'<path d="M{path}" stroke="{colour}" fill="none"{stroke_of(series.dashed)}/>'


def _gap(box: Box, point: Point) -> str:
    x = box.left + box.x.place(point[0]) * (box.right - box.left)
    return line(x, box.top, x, box.bottom, FAULT, ' stroke-dasharray="2 4"') + cross(x, box.top)


def _marks(box: Box, marks: Sequence[Mark]) -> list[str]:
    """Return the marks; a label that would touch another one goes a line up."""
    parts: list[str] = []
    ends = [-math.inf, -math.inf, -math.inf]
    for mark in sorted(marks, key=lambda mark: mark.x):
        x = box.left + box.x.place(mark.x) * (box.right - box.left)
        half = width_of(mark.label) / 2
        middle = min(max(x, box.left + half), box.right - half)
        row = next((nr for nr, end in enumerate(ends) if end + 8 < middle - half), 0)
        ends[row] = middle + half
        parts.append(line(x, box.top - 6 - 15 * row, x, box.bottom, mark.colour, ' stroke-dasharray="6 3"'))
        parts.append(label(middle, box.top - 10 - 15 * row, mark.label, anchor="middle", fill=mark.colour))
    return parts


# --- bars ---------------------------------------------------------------------------------------


def bars(title: str, description: str, items: Sequence[tuple[str, float]], *, unit: str, sign: bool = False) -> str:
    """Return horizontal bars that start at zero, with their values written beside them.

    Args:
        title: The chart's subject.
        description: The chart's content in words, for readers who cannot see it.
        items: The name and value of each bar; a value that is not finite is written instead of drawn.
        unit: The unit or name of the values, under the bars.
        sign: Whether positive values get a plus.
    """
    values = [value for _, value in items if drawable(value)]
    low, high = min([0.0, *values]), max([0.0, *values])
    span = (high - low) or 1.0
    written = [f"{'+' if sign and value > 0 else ''}{number(_as_recorded(value), 3)}" for _, value in items]
    room = max((width_of(text) for text in written), default=0) + 10
    left = 30 + max((width_of(cut(visible(name), 34)) for name, _ in items), default=0) + (room + 8 if low < 0 else 0)
    unit_width = (WIDTH - 24 - room - left) / span
    parts = []
    for nr, ((name, value), text) in enumerate(zip(items, written, strict=True)):
        parts += _bar(nr, cut(visible(name), 34), value, text, left - low * unit_width, unit_width)
    bottom = 48 + 26 * len(items)
    zero = left - low * unit_width
    axis = [
        line(zero, 44, zero, bottom, GREY),
        label((left + WIDTH - 24 - room) / 2, bottom + 22, unit, anchor="middle", fill=GREY),
    ]
    return picture(title, description, bottom + 36, [*parts, *axis])


def _as_recorded(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _bar(nr: int, name: str, value: float, written: str, zero: float, unit_width: float) -> list[str]:
    y = 48 + 26 * nr
    length = value * unit_width if drawable(value) else 0.0
    x = zero + min(0.0, length)
    fill = FAULT if not drawable(value) else BLUE if value >= 0 else VERMILLION
    beside = label(x - 6, y + 14, written, anchor="end") if length < 0 else label(zero + length + 6, y + 14, written)
    return [
        label(20, y + 14, name),
        f'<rect x="{pixels(x)}" y="{y}" width="{pixels(abs(length))}" height="18" fill="{fill}"/>',
        beside,
    ]


# --- scatter ------------------------------------------------------------------------------------


def scatter(title: str, description: str, pairs: Sequence[Point], *, x_label: str, y_label: str) -> str:
    """Return a chart of points around the diagonal of equal values; pairs that are not finite are counted, not drawn."""
    whole = [(x, y) for x, y in pairs if drawable(x) and drawable(y)]
    if not whole:
        return empty(title, "No finite pair was measured.")
    scale = linear([value for pair in whole for value in pair])
    left = 44 + max(width_of(name) for _, name in scale.ticks)
    box = Box(left, 64, min(WIDTH - 22, left + 480), 404, scale, scale)
    diagonal = line(
        *box.at(scale.low, scale.low), *box.at(scale.high, scale.high), VERMILLION, ' stroke-width="1.5" stroke-dasharray="6 4"'
    )
    dots = dot_path([box.at(x, y) for x, y in whole], BLUE, 5, ' stroke-opacity=".65"')
    missing = len(pairs) - len(whole)
    beside = f"; {missing:,} pairs are not finite and not drawn" if missing else ""
    key = [line(20, 44, 42, 44, VERMILLION, ' stroke-dasharray="6 4"'), label(48, 48, f"prediction = target{beside}")]
    return picture(title, description, 452, [*key, *grid(box, x_label, y_label), diagonal, dots])
