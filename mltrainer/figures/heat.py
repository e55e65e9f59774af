"""Heat maps: a confusion matrix with its counts, and a grid of values on a log colour scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from mltrainer.figures.axes import Scale, drawable, log10, logarithmic
from mltrainer.figures.canvas import (
    GREY,
    LINE,
    VERMILLION,
    WIDTH,
    cross,
    dot_path,
    empty,
    label,
    picture,
    pixels,
    width_of,
)
from mltrainer.reports.values import number, visible
from mltrainer.reports.views import evenly

CIVIDIS = ((0, 34, 78), (53, 69, 108), (102, 105, 112), (148, 142, 119), (200, 184, 102), (254, 232, 56))
BLUES = ((238, 244, 250), (158, 197, 226), (73, 144, 196), (0, 90, 150), (0, 48, 92))
LEVELS = 24  # colours of a heat map of many cells
MAX_COUNTED = 25  # classes of the largest confusion matrix with written counts
MAX_COLUMNS, MAX_ROWS = 48, 24


def mix(colours: Sequence[tuple[int, int, int]], share: float) -> str:
    """Return the colour at a share, from 0 to 1, of a gradient of colours."""
    place = min(max(share, 0.0), 1.0) * (len(colours) - 1)
    first = min(int(place), len(colours) - 2)
    rest = place - first
    mixed = [round(a + (b - a) * rest) for a, b in zip(colours[first], colours[first + 1], strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def confusion_matrix(title: str, description: str, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return a confusion matrix: a row per true class, a column per predicted one, coloured by the share of the row."""
    count = len(classes)
    names = labels(classes, (14, 20))
    left = 52 + max((width_of(name) for name in names), default=0)
    side = min(max(44.0, 250 / max(count, 1)), 90.0, (WIDTH - 30 - left) / max(count, 1), 460 / max(count, 1))
    top = 78 + (0 if _fits(names, side) else max(width_of(name) for name in names) * 0.75)
    parts = []
    for row, numbers in enumerate(counts):
        total = math.fsum(numbers) or 1.0
        for column, value in enumerate(numbers):
            if value:
                parts += _cell(left + column * side, top + row * side, side, value, value / total, count <= MAX_COUNTED)
    end = top + count * side
    middle = (top + end) / 2
    across = pixels(count * side)
    place = f'x="{pixels(left)}" y="{pixels(top)}" width="{across}" height="{across}"'
    frame = f'<rect {place} fill="none" stroke="{GREY}"/>'
    words = [
        label(20, 48, "colour: share of the true class; empty cell: 0", fill=GREY),
        label(left + count * side / 2, end + 22, "predicted class", anchor="middle", fill=GREY),
        label(18, middle, "true class", anchor="middle", fill=GREY, extra=f' transform="rotate(-90 18 {pixels(middle)})"'),
    ]
    return picture(title, description, end + 36, [*_class_names(names, left, top, side), *parts, frame, *words])


def _fits(names: Sequence[str], side: float) -> bool:
    return all(width_of(name) < side - 4 for name in names)


def _class_names(names: Sequence[str], left: float, top: float, side: float) -> list[str]:
    # A name is 14 pixels high: where rows are lower, not every row has room for one.
    every = max(1, -(-14 // max(1, int(side))))
    parts = []
    for nr, name in list(enumerate(names))[::every]:
        middle = (nr + 0.5) * side
        parts.append(label(left - 8, top + middle + 4, name, anchor="end"))
        x, y = left + middle, top - 6
        if _fits(names, side):
            parts.append(label(x, y, name, anchor="middle"))
        else:
            parts.append(label(x, y, name, extra=f' transform="rotate(-45 {pixels(x)} {pixels(y)})"'))
    return parts


def _cell(x: float, y: float, side: float, value: int, share: float, counted: bool) -> list[str]:
    fill = mix(BLUES, share)
    parts = [f'<rect x="{pixels(x)}" y="{pixels(y)}" width="{pixels(side)}" height="{pixels(side)}" fill="{fill}"/>']
    if counted:
        written = f"{value}"
        font = min(12.0, side * 0.5, (side - 2) / max(1, len(written)) / 0.56)
        ink = "#fff" if share > 0.5 else ""
        size = "" if font == 12 else f' font-size="{pixels(font)}"'
        parts.append(label(x + side / 2, y + side / 2 + font * 0.36, written, anchor="middle", fill=ink, extra=size))
    return parts


def heat_map(
    title: str,
    description: str,
    rows: Sequence[tuple[str, Sequence[float]]],
    columns: Sequence[float],
    *,
    x_label: str,
    scale_label: str,
    terrain: bool = False,
) -> str:
    """Return a heat map on a log colour scale; zeros are grey, values that are not finite are crossed out.

    Args:
        title: The figure's subject.
        description: The figure's content in words, for readers who cannot see it.
        rows: The name and values of each row, from the top down; many rows are thinned evenly.
        columns: The value of each column, such as an epoch; many columns are thinned evenly, the last one kept.
        x_label: The name of the columns.
        scale_label: The name of the coloured values.
        terrain: Whether the columns are positions on an axis with a marked 0 in the middle, and the colours end at the values.
    """
    chosen_rows = [rows[place] for place in evenly(len(rows), MAX_ROWS)]
    places = evenly(len(columns), MAX_COLUMNS)
    values = [value for _, row in chosen_rows for value in row if drawable(value) and value > 0]
    if not values:
        return empty(title, "No positive value was measured.")
    scale = _tight(values) if terrain else logarithmic(values)
    names = labels([name for name, _ in chosen_rows])
    left = float(round(32 + max(width_of(name) for name in names)))
    width, height = float((WIDTH - 110 - left) // len(places)), float(min(26, 300 // len(chosen_rows)))
    runs = [run for nr, (_, row) in enumerate(chosen_rows) for run in _runs(row, places, scale, nr)]
    body = [*_stripes(runs, (left, 48, width, height)), *_crosses(runs, (left, 48, width, height))]
    words = [label(left - 8, 48 + (nr + 0.5) * height + 4, name, anchor="end") for nr, name in enumerate(names)]
    end = max(48 + len(chosen_rows) * height, 150.0)
    below = 48 + len(chosen_rows) * height
    texts = [f"{columns[place]:.3g}" if terrain else number(int(columns[place])) for place in places]
    ticks = [
        label(left + (nr + 0.5) * width, below + 16, texts[nr], anchor="middle", fill=GREY)
        for nr in evenly(len(places), 5 if terrain else 8)
    ]
    middle = (left + len(places) * width / 2, 48 + len(chosen_rows) * height / 2)
    ticks += [dot_path([middle], "#fff", 10), dot_path([middle], VERMILLION, 7)] if terrain else []
    axis = label(left + len(places) * width / 2, below + 34, x_label, anchor="middle", fill=GREY)
    return picture(title, description, end + 48, [*words, *body, *ticks, axis, *_colour_bar(scale, scale_label, end)])


def _tight(values: Sequence[float]) -> Scale:
    """Return a log axis from the smallest to the largest of some positive values, with ticks between."""
    low, high = min(values), max(values)
    # Equal values would leave the axis without a length.
    high = max(high, low * (1 + 1e-6))
    ticks = [low + (high - low) * share for share in (0.0, 0.1, 0.3, 0.6, 1.0)]
    return Scale(log10(low), log10(high), tuple((log10(tick), number(tick)) for tick in ticks), log=True)


def labels(names: Sequence[str], limits: Sequence[int] = (24, 32, 40)) -> list[str]:
    """Return names shortened for a figure that are still distinct, where one of the limits allows it.

    The common beginning of all names is left out of long ones, and the rest is cut in its middle: in a deep network both ends
    of a layer's name differ.
    """
    shown = [visible(name) for name in names]
    start = _common(shown)
    for limit in limits:
        short = [name if len(name) <= limit else _middle(name[start:], limit, start > 0) for name in shown]
        if len(set(short)) == len(set(shown)):
            break
    return short


def _common(names: Sequence[str]) -> int:
    """Return the length of the dotted prefix common to all names; 0 for a single name."""
    parts = [set(level) for level in zip(*(name.split(".")[:-1] for name in names), strict=False)]
    shared = itertools.takewhile(lambda level: len(level) == 1, parts)
    return sum(len(next(iter(level))) + 1 for level in shared) if len(names) > 1 else 0


def _middle(name: str, limit: int, beheaded: bool) -> str:
    head = "…" if beheaded else ""
    if len(head) + len(name) <= limit:
        return head + name
    room = limit - len(head) - 1
    return f"{head}{name[: room // 2]}…{name[len(name) - (room - room // 2) :]}"


def _level(value: float, scale: Scale) -> int:
    """Return a cell's colour level: 0 to LEVELS - 1, -1 for zero, -2 for a value that is not finite."""
    if not drawable(value):
        return -2
    # The largest value is at the very end, where one more colour would begin.
    return min(LEVELS - 1, int(scale.place(value) * LEVELS)) if value > 0 else -1


def _runs(row: Sequence[float], places: Sequence[int], scale: Scale, nr: int) -> Iterable[tuple[int, int, int, int]]:
    """Yield the runs of equal colour in a row: colour, row, first column, number of columns."""
    levels = [_level(row[place], scale) if place < len(row) else -2 for place in places]
    start = 0
    for column, level in enumerate(levels):
        if column + 1 == len(levels) or levels[column + 1] != level:
            yield level, nr, start, column + 1 - start
            start = column + 1


def _stripes(runs: Sequence[tuple[int, int, int, int]], cell: tuple[float, float, float, float]) -> Iterable[str]:
    """Yield each colour as one path of strokes as wide as a row is high, which keeps the file small."""
    left, top, width, height = cell
    for colour in sorted({level for level, *_ in runs if level >= -1}):
        stroke = mix(CIVIDIS, colour / (LEVELS - 1)) if colour >= 0 else LINE
        mine = [run for run in runs if run[0] == colour]
        path = "".join(
            f"M{pixels(left + x * width)} {pixels(top + (y + 0.5) * height)}h{pixels(n * width)}" for _, y, x, n in mine
        )
        wide = pixels(height)
        yield f'<path d="{path}" stroke="{stroke}" stroke-width="{wide}" fill="none" shape-rendering="crispEdges"/>'


def _crosses(runs: Sequence[tuple[int, int, int, int]], cell: tuple[float, float, float, float]) -> Iterable[str]:
    left, top, width, height = cell
    for _, y, x, count in (run for run in runs if run[0] == -2):
        yield from (cross(left + (x + nr + 0.5) * width, top + (y + 0.5) * height) for nr in range(count))


def _colour_bar(scale: Scale, name: str, end: float) -> list[str]:
    x, top = WIDTH - 92, 48.0
    step = (end - top) / LEVELS
    parts = [
        # Half a pixel higher than its step: else the background would show between two colours.
        f'<rect x="{x}" y="{pixels(end - (nr + 1) * step)}" width="14" height="{pixels(step + 0.5)}" '
        f'fill="{mix(CIVIDIS, nr / (LEVELS - 1))}"/>'
        for nr in range(LEVELS)
    ]
    powers = [tick for tick in scale.ticks if tick[0] == int(tick[0])]
    ticks = powers if len(powers) > 1 else scale.ticks
    parts += [
        label(x + 20, end - (tick - scale.low) / (scale.high - scale.low) * (end - top) + 4, text, fill=GREY)
        for tick, text in ticks
    ]
    middle = (top + end) / 2
    turned = f' transform="rotate(-90 {WIDTH - 14} {pixels(middle)})"'
    return [*parts, label(WIDTH - 14, middle, name, anchor="middle", fill=GREY, extra=turned)]
