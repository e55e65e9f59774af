"""The elements of every figure: text, lines, axes, a legend, and the white background."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mltrainer.figures.axes import Scale
from mltrainer.figures.series import Series
from mltrainer.reports.values import cut, visible

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
INK, GREY, LINE, FAULT = "#24292f", "#57606a", "#d8dee4", "#b30000"
WIDTH = 640
_REFERENCED = re.compile(r"[&<>\"'{}]")
_FONT = "-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


@dataclass(frozen=True)
class Mark:
    """A marked place on the x axis, such as the best epoch."""

    x: float
    label: str
    colour: str = GREEN


@dataclass(frozen=True)
class Box:
    """The rectangle of the data in pixels, with the scales of its axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixels of a point."""
        return (
            self.left + self.x.place(x) * (self.right - self.left),
            self.bottom - self.y.place(y) * (self.bottom - self.top),
        )


# --- words and pixels ---------------------------------------------------------------------------


def escape(value: object) -> str:
    """Return text escaped for XML; control characters become visible, template braces stay literal."""
    return _REFERENCED.sub(lambda match: f"&#{ord(match[0])};", visible(value))


def pixels(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    written = f"{value:.1f}"
    return "0" if written in ("-0.0", "0.0") else written.removesuffix(".0")


def width_of(text: str, font: float = 12) -> float:
    """Return a text's approximate width in pixels; wide scripts count double."""
    return sum(1.0 if ord(c) >= 0x1100 else 0.62 if c.isupper() or c in "mwMW%" else 0.54 for c in visible(text)) * font


def label(x: float, y: float, text: object, *, anchor: str = "", fill: str = "", extra: str = "") -> str:
    """Return a text element; the SVG's own size, ink and left alignment are the defaults."""
    attributes = (f' text-anchor="{anchor}"' if anchor else "") + (f' fill="{fill}"' if fill else "") + extra
    return f'<text x="{pixels(x)}" y="{pixels(y)}"{attributes}>{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, extra: str = "") -> str:
    """Return a straight line."""
    return f'<path d="M{pixels(x1)} {pixels(y1)}L{pixels(x2)} {pixels(y2)}" stroke="{stroke}" fill="none"{extra}/>'


def dot_path(places: Iterable[tuple[float, float]], colour: str, size: float, extra: str = "") -> str:
    """Return points as one path, which keeps the file small."""
    # A line of no length with round ends is a dot.
    path = "".join(f"M{pixels(x)} {pixels(y)}h0" for x, y in places)
    return f'<path d="{path}" stroke="{colour}" stroke-width="{pixels(size)}" stroke-linecap="round" fill="none"{extra}/>'


def picture(title: str, description: str, height: float, parts: Iterable[str]) -> str:
    """Return a whole SVG with its background, title and description."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{pixels(height)}" '
        f'viewBox="0 0 {WIDTH} {pixels(height)}" role="img" aria-labelledby="t d" '
        f'font-family="{_FONT}" font-size="12" fill="{INK}">'
    )
    ground = f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{pixels(height - 1)}" rx="8" fill="#fff" stroke="{LINE}"/>'
    names = f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(description)}</desc>'
    heading = label(20, 28, title, extra=' font-size="15" font-weight="600"')
    return "\n".join([head, names, ground, heading, *parts, "</svg>"]) + "\n"


# --- axes and legend ----------------------------------------------------------------------------


def grid(box: Box, x_label: str, y_label: str) -> list[str]:
    """Return the axes: grid lines, ticks and names."""
    middle_x, middle_y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    return [
        *rulers(box),
        label(middle_x, box.bottom + 36, x_label, anchor="middle", fill=GREY),
        label(18, middle_y, y_label, anchor="middle", fill=GREY, extra=f' transform="rotate(-90 18 {pixels(middle_y)})"'),
    ]


def rulers(box: Box) -> list[str]:
    """Return the axes without their names."""
    return [*_rows(box), *_columns(box), line(box.left, box.bottom, box.right, box.bottom, GREY)]


def _rows(box: Box) -> list[str]:
    heights = [
        (box.bottom - (tick - box.y.low) / (box.y.high - box.y.low) * (box.bottom - box.top), name) for tick, name in box.y.ticks
    ]
    path = "".join(f"M{pixels(box.left)} {pixels(y)}H{pixels(box.right)}" for y, _ in heights)
    names = [label(box.left - 8, y + 4, name, anchor="end", fill=GREY) for y, name in heights]
    return [f'<path d="{path}" stroke="{LINE}" fill="none"/>', *names]


def _columns(box: Box) -> list[str]:
    span = box.x.high - box.x.low
    places = [(box.left + (tick - box.x.low) / span * (box.right - box.left), name) for tick, name in box.x.ticks]
    path = "".join(f"M{pixels(x)} {pixels(box.bottom)}v5" for x, _ in places)
    names = [label(x, box.bottom + 18, name, anchor="middle", fill=GREY) for x, name in places]
    return [f'<path d="{path}" stroke="{GREY}" fill="none"/>', *names]


def legend_of(series: Sequence[Series], broken: str) -> tuple[list[str], float]:
    """Return the legend's elements and the height at which it ends; it wraps like text."""
    parts: list[str] = []
    x, y = 20.0, 48.0
    for nr, (name, dashed, dots) in enumerate(
        [*((s.name, s.dashed, s.dots) for s in series), *([(broken, False, False)] if broken else [])]
    ):
        needed = 28 + width_of(cut(visible(name), 40)) + 16
        if x > 20 and x + needed > WIDTH - 10:
            x, y = 20.0, y + 18
        parts.append(_key(x, y, None if nr == len(series) else colour_of(nr), dashed, dots))
        parts.append(label(x + 28, y, cut(visible(name), 40)))
        x += needed
    return parts, y


def _key(x: float, y: float, colour: str | None, dashed: bool, dots: bool) -> str:
    if colour is None:
        return cross(x + 11, y - 4)
    if dots:
        return dot_path([(x + 11, y - 4)], colour, 7)
    return line(x, y - 4, x + 22, y - 4, colour, stroke_of(dashed))


def stroke_of(dashed: bool) -> str:
    """Return the SVG attributes of a line's stroke."""
    return ' stroke-width="2" stroke-dasharray="5 4"' if dashed else ' stroke-width="2.2" stroke-linejoin="round"'


def colour_of(nr: int) -> str:
    """Return the colour of a series by its number."""
    return PALETTE[nr % len(PALETTE)]


def cross(x: float, y: float) -> str:
    """Return the mark of a value that cannot be drawn."""
    path = f"M{pixels(x - 4)} {pixels(y - 4)}l8 8m0-8l-8 8"
    return f'<path d="{path}" stroke="{FAULT}" stroke-width="2" fill="none"/>'


def empty(title: str, reason: str) -> str:
    """Return a figure with the reason why there is nothing to draw."""
    return picture(title, reason, 90, [label(20, 60, reason, fill=GREY)])
