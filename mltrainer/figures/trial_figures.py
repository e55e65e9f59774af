"""Figures of many trials at once: small multiples, a plane, parallel coordinates, and a bundle of curves.

The better a trial, the darker it is; the best one has another colour. Ranks are used, not values, so that one bad trial does
not bleach the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mltrainer.figures.axes import Scale
from mltrainer.figures.canvas import GREY, VERMILLION, WIDTH, Box, dot_path, grid, label, line, picture, pixels, rulers
from mltrainer.figures.heat import BLUES, mix
from mltrainer.figures.series import Point
from mltrainer.reports.values import cut, visible

SHADES = tuple(mix(BLUES[1:], nr / 4) for nr in range(5))  # from the worst fifth of the trials to the best
WASHES = tuple(mix(((240, 240, 240), BLUES[1]), nr / 4) for nr in range(5))
CELLS = 24
REACH = 0.15  # share of an axis: the distance up to which a trial counts for the colour of the plane


@dataclass(frozen=True)
class Marked:
    """A trial's point.

    Attributes:
        x: The value on the horizontal axis.
        y: The value on the vertical axis.
        rank: The rank, from 0, the worst, to 1, the best.
    """

    x: float
    y: float
    rank: float


@dataclass(frozen=True)
class Panel:
    """One of the small multiples: a dimension's name and axis, and the trials."""

    name: str
    x: Scale
    points: Sequence[Marked]


@dataclass(frozen=True)
class Curve:
    """A trial's line; `stopped`: whether the trial was stopped at its end."""

    points: Sequence[Point]
    rank: float
    stopped: bool = False


def _shade(rank: float) -> int:
    return min(len(SHADES) - 1, int(rank * len(SHADES)))


def _legend(beside: str = "") -> list[str]:
    """Return the key of the colours, with a note at the right."""
    keys = [dot_path([(26 + 9 * nr, 44)], colour, 8) for nr, colour in enumerate(SHADES)]
    best = [dot_path([(282, 44)], VERMILLION, 9), label(292, 48, "best")]
    note = [label(WIDTH - 16, 48, cut(visible(beside), 36), anchor="end", fill=GREY)] if beside else []
    return [*keys, label(74, 48, "worst to best fifth of the trials"), *best, *note]


def _dots(box: Box, points: Iterable[Marked], size: float) -> list[str]:
    """Return the points, the better ones on top, each colour as one path."""
    drawn = [point for point in points if box.x.has(point.x) and _inside(box.y, point.y)]
    parts = []
    for nr, colour in enumerate(SHADES):
        places = [box.at(point.x, point.y) for point in drawn if _shade(point.rank) == nr]
        parts += [dot_path(places, colour, size)] if places else []
    best = [box.at(point.x, point.y) for point in drawn if point.rank == 1]
    return [*parts, dot_path(best, VERMILLION, size + 3)] if best else parts


# --- small multiples ----------------------------------------------------------------------------


def small_multiples(title: str, description: str, panels: Sequence[Panel], y: Scale, *, y_label: str) -> str:
    """Return a figure with a panel for each dimension, two in a row, all with the same vertical axis.

    Args:
        title: The figure's subject.
        description: The figure's content in words, for readers who cannot see it.
        panels: The panels of the dimensions.
        y: The vertical axis; points that are not on it are left out.
        y_label: The name of the vertical axis.
    """
    width, height = WIDTH / 2 - 10, 204.0
    parts = _legend(f"up: {y_label}")
    for nr, panel in enumerate(panels):
        left, top = 10 + nr % 2 * width, 62 + nr // 2 * height
        box = Box(left + 58, top + 24, left + width - 16, top + height - 34, panel.x, y)
        middle = (box.left + box.right) / 2
        name = label(middle, top + 14, cut(visible(panel.name), 38), anchor="middle", extra=' font-weight="600"')
        parts += [name, *rulers(box), *_dots(box, panel.points, 5)]
    return picture(title, description, 66 + -(-len(panels) // 2) * height, parts)


# --- a plane ------------------------------------------------------------------------------------


def plane(title: str, description: str, points: Sequence[Marked], x: Scale, y: Scale, *, x_label: str, y_label: str) -> str:
    """Return a figure of trials over two dimensions; the background's colour is the mean rank of near trials, white without any.

    Args:
        title: The figure's subject.
        description: The figure's content in words, for readers who cannot see it.
        points: The trials.
        x: The horizontal axis.
        y: The vertical axis.
        x_label: The name of the horizontal axis.
        y_label: The name of the vertical axis.
    """
    box = Box(96, 64, WIDTH - 24, 404, x, y)
    drawn = [point for point in points if x.has(point.x) and y.has(point.y)]
    ground, axes = _ground(box, drawn), grid(box, x_label, y_label)
    return picture(title, description, 452, [*_legend("ground: mean rank of trials near"), *ground, *axes, *_dots(box, drawn, 6)])


def _ground(box: Box, points: Sequence[Marked]) -> list[str]:
    """Return the cells of each colour as one path of strokes as wide as a cell is high."""
    wide, high = (box.right - box.left) / CELLS, (box.bottom - box.top) / CELLS
    placed = [(box.x.place(point.x), box.y.place(point.y), point.rank) for point in points]
    means = {(row, column): _mean_rank(placed, row, column) for row in range(CELLS) for column in range(CELLS)}
    parts = []
    for nr, colour in enumerate(WASHES):
        cells = [cell for cell, mean in means.items() if mean is not None and _shade(mean) == nr]
        path = "".join(
            f"M{pixels(box.left + column * wide)} {pixels(box.bottom - (row + 0.5) * high)}h{pixels(wide)}"
            for row, column in cells
        )
        stroke = f'stroke="{colour}" stroke-width="{pixels(high)}" fill="none" shape-rendering="crispEdges"'
        parts += [f'<path d="{path}" {stroke}/>'] if cells else []
    return parts


def _mean_rank(points: Sequence[tuple[float, float, float]], row: int, column: int) -> float | None:
    """Return the mean rank around a cell, weighted by (1 - d^2)^2, d the distance over `REACH`; None where no trial is near."""
    x, y = (column + 0.5) / CELLS, (row + 0.5) / CELLS
    near = [(1 - distance, rank) for a, b, rank in points if (distance := ((a - x) ** 2 + (b - y) ** 2) / REACH**2) < 1]
    weight = math.fsum(close * close for close, _ in near)
    return math.fsum(close * close * rank for close, rank in near) / weight if weight else None


# --- parallel coordinates -----------------------------------------------------------------------


def parallel(
    title: str, description: str, axes: Sequence[tuple[str, Scale]], curves: Sequence[tuple[Sequence[float], float]]
) -> str:
    """Return a figure with a vertical axis for each dimension, and a line through them for each trial.

    Args:
        title: The figure's subject.
        description: The figure's content in words, for readers who cannot see it.
        axes: The name and scale of each axis.
        curves: For each trial its value on each axis, NaN where it has none, and its rank; better ones are drawn on top.
    """
    top, bottom, left = 92.0, 330.0, 60.0
    step = (WIDTH - 50 - left) / max(1, len(axes) - 1)
    boxes = [Box(left + nr * step, top, left + nr * step, bottom, scale, scale) for nr, (_, scale) in enumerate(axes)]
    lines = [_path(_through(boxes, values), rank) for values, rank in sorted(curves, key=lambda curve: curve[1])]
    return picture(title, description, bottom + 24, [*_legend(), *lines, *_posts(axes, boxes)])


def _through(boxes: Sequence[Box], values: Sequence[float]) -> list[Point]:
    found = zip(boxes, values, strict=True)
    return [(box.left, box.bottom - box.y.place(value) * (box.bottom - box.top)) for box, value in found if box.y.has(value)]


def _path(places: Sequence[Point], rank: float) -> str:
    """Return a trial's line in the colour of its rank."""
    colour, width = (VERMILLION, "3") if rank == 1 else (SHADES[_shade(rank)], "1.2")
    path = "L".join(f"{pixels(x)} {pixels(y)}" for x, y in places)
    return f'<path d="M{path}" stroke="{colour}" stroke-width="{width}" fill="none" stroke-linejoin="round"/>' if places else ""


def _posts(axes: Sequence[tuple[str, Scale]], boxes: Sequence[Box]) -> list[str]:
    parts = []
    for nr, ((name, scale), box) in enumerate(zip(axes, boxes, strict=True)):
        end = "start" if nr == 0 else "end" if nr == len(axes) - 1 else "middle"
        x = {"start": 20.0, "end": WIDTH - 16.0, "middle": box.left}[end]
        parts.append(line(box.left, box.top, box.left, box.bottom, GREY))
        parts.append(label(x, 68 + 14 * (nr % 2), cut(visible(name), 26), anchor=end, extra=' font-weight="600"'))
        parts += _marks(box, scale)
    return parts


def _marks(box: Box, scale: Scale) -> list[str]:
    """Return an axis's ticks, with a white outline that keeps them readable among the lines."""
    spread = scale.high - scale.low
    return [
        label(
            box.left - 5,
            box.bottom - (at - scale.low) / spread * (box.bottom - box.top) + 4,
            cut(name, 10),
            anchor="end",
            fill=GREY,
            extra=' stroke="#fff" stroke-width="3" paint-order="stroke"',
        )
        for at, name in scale.ticks
        if scale.low <= at <= scale.high
    ]


# --- curves -------------------------------------------------------------------------------------


def bundle(title: str, description: str, curves: Sequence[Curve], x: Scale, y: Scale, *, x_label: str, y_label: str) -> str:
    """Return a figure of many curves over common axes; a dot ends a curve whose trial was stopped.

    Args:
        title: The figure's subject.
        description: The figure's content in words, for readers who cannot see it.
        curves: The trials' curves; points beyond the axes are left out.
        x: The horizontal axis.
        y: The vertical axis.
        x_label: The name of the horizontal axis.
        y_label: The name of the vertical axis.
    """
    box = Box(84, 64, WIDTH - 24, 344, x, y)
    ordered = sorted(curves, key=lambda curve: curve.rank)
    shown = [([box.at(*point) for point in curve.points if _inside(y, point[1])], curve) for curve in ordered]
    lines = [_path(places, curve.rank) if len(places) > 1 else "" for places, curve in shown]
    ends = [(places[-1], curve.rank) for places, curve in shown if places and (curve.stopped or len(places) == 1)]
    dots = [
        dot_path([place for place, rank in ends if _shade(rank) == nr], colour, 6)
        for nr, colour in enumerate(SHADES)
        if any(_shade(rank) == nr for _, rank in ends)
    ]
    note = "dot: stopped at a rung" if any(curve.stopped for curve in curves) else ""
    return picture(title, description, 396, [*_legend(note), *grid(box, x_label, y_label), *filter(None, lines), *dots])


def _inside(scale: Scale, value: float) -> bool:
    return scale.has(value) and scale.low <= value <= scale.high
