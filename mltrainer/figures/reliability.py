"""A reliability diagram: how often what was predicted with a probability came true (DeGroot and Fienberg, 1983)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.figures.axes import linear
from mltrainer.figures.canvas import BLUE, GREY, VERMILLION, WIDTH, Box, dot_path, grid, label, line, picture


@dataclass(frozen=True)
class Bin:
    """Samples of about one probability: how often it came true, and the ends of that share's interval."""

    probability: float
    frequency: float
    low: float
    high: float


def reliability(title: str, description: str, bins: Sequence[Bin], *, x_label: str, y_label: str) -> str:
    """Return each bin's frequency over its probability, with its interval, beside the diagonal.

    Args:
        title: What it shows.
        description: What a reader who cannot see it should know.
        bins: At least one.
        x_label: Name of the probability.
        y_label: Name of the frequency.
    """
    scale = linear([0.0, 1.0])
    box = Box(82, 70, min(WIDTH - 22, 82 + 400), 410, scale, scale)
    key = [
        line(20, 44, 42, 44, VERMILLION, ' stroke-width="1.5" stroke-dasharray="6 4"'),
        label(48, 48, "as often as predicted"),
        dot_path([(205, 44)], BLUE, 7),
        label(215, 48, "a bin of probabilities, and its 95 % interval"),
    ]
    diagonal = line(*box.at(0, 0), *box.at(1, 1), VERMILLION, ' stroke-width="1.5" stroke-dasharray="6 4"')
    whiskers = [line(*box.at(one.probability, one.low), *box.at(one.probability, one.high), BLUE) for one in bins]
    dots = dot_path([box.at(one.probability, one.frequency) for one in bins], BLUE, 8)
    sides = [
        label(box.left + 10, box.top + 16, "predicted too low", fill=GREY),
        label(box.right - 10, box.bottom - 10, "predicted too high", anchor="end", fill=GREY),
    ]
    return picture(title, description, 462, [*key, *grid(box, x_label, y_label), *sides, diagonal, *whiskers, dots])
