"""Distributions over time: a panel for each layer, in it a ridge for each time, the first on top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.figures.axes import Scale, drawable, linear
from mltrainer.figures.canvas import GREY, WIDTH, Box, empty, label, line, picture, pixels, rulers
from mltrainer.figures.heat import BLUES, labels, mix
from mltrainer.reports.views import evenly

PEAK = 30.0  # pixels, of the highest point of a ridge
WIDEST_STEP, ROOM = 26.0, 144.0  # pixels, from one ridge to the next at most, and from the first to the last
MOST_RIDGES = 14
_NO_SCALE = Scale(0.0, 1.0, ())


@dataclass(frozen=True)
class Ridge:
    """A distribution at one time.

    Attributes:
        time: The time's label, beside the ridge.
        low: The lower end of the first bin.
        high: The upper end of the last bin.
        counts: The counts of equal bins.
    """

    time: str
    low: float
    high: float
    counts: Sequence[int]


@dataclass(frozen=True)
class Ridges:
    """A panel: its name, and its distributions in the order of time."""

    name: str
    rows: Sequence[Ridge]


def ridges(title: str, description: str, panels: Sequence[Ridges], *, time: str) -> str:
    """Return a figure of the panels, two in a row, each on its own axis; every ridge is scaled to its own height.

    Args:
        title: The figure's subject.
        description: The figure's content in words, for readers who cannot see it.
        panels: The panels, of at least one distribution each; of many the first, the last and evenly chosen ones are drawn.
        time: The unit of the times, such as "epoch".
    """
    shown = [found for panel in panels if (found := _thinned(panel)).rows]
    if not shown:
        return empty(title, "No finite value was measured.")
    width = WIDTH / 2 - 10
    most = max(len(panel.rows) for panel in shown) - 1
    step = min(WIDEST_STEP, ROOM / max(1, most))
    height = 24 + PEAK + step * most + 50
    names = labels([panel.name for panel in shown], (40, 48))
    parts = [label(20, 48, f"from the first {time} (light) to the last (dark)", fill=GREY)]
    for nr, (panel, name) in enumerate(zip(shown, names, strict=True)):
        parts += _panel(panel, name, 10 + nr % 2 * width, 60 + nr // 2 * height, width, step)
    return picture(title, description, 64 + -(-len(shown) // 2) * height, parts)


def _thinned(panel: Ridges) -> Ridges:
    whole = [row for row in panel.rows if drawable(row.low) and drawable(row.high) and any(row.counts)]
    return Ridges(panel.name, [whole[place] for place in evenly(len(whole), MOST_RIDGES)])


def _panel(panel: Ridges, name: str, left: float, top: float, width: float, step: float) -> list[str]:
    ends = [end for row in panel.rows for end in (row.low, row.high)]
    first = top + 20 + PEAK
    bottom = first + step * (len(panel.rows) - 1)
    box = Box(left + 44, first, left + width - 16, bottom + 5, linear(ends, 4, tight=True), _NO_SCALE)
    middle = (box.left + box.right) / 2
    parts = [label(middle, top + 12, name, anchor="middle", extra=' font-weight="600"')]
    for nr, row in enumerate(panel.rows):
        parts.append(_ridge(box, row, first + nr * step, nr / max(1, len(panel.rows) - 1)))
    named = evenly(len(panel.rows), max(2, int((bottom - first) / 18)))
    parts += [label(box.left - 6, first + nr * step + 4, panel.rows[nr].time, anchor="end", fill=GREY) for nr in named]
    zero = box.at(0.0, 0.0)[0]
    inside = box.left < zero < box.right
    return [*rulers(box), *([line(zero, top + 20, zero, box.bottom, GREY, ' stroke-dasharray="2 3"')] if inside else []), *parts]


def _ridge(box: Box, row: Ridge, y: float, share: float) -> str:
    """Return a filled outline; equal values are a spike."""
    width, peak = (row.high - row.low) / len(row.counts), max(row.counts)
    places = [(row.low, 0.0)]
    places += [(row.low + (nr + 0.5) * width, count / peak) for nr, count in enumerate(row.counts)]
    places.append((row.high, 0.0))
    outline = "L".join(f"{pixels(box.at(x, 0.0)[0])} {pixels(y - PEAK * height)}" for x, height in places)
    fill = mix(BLUES[1:], share)
    return f'<path d="M{outline}Z" fill="{fill}" fill-opacity=".95" stroke="#fff" stroke-width=".8"/>'
