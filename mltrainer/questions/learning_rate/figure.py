"""The figure of a range test: the loss over the learning rate."""

from __future__ import annotations

import math
from typing import Any

from mltrainer.figures.canvas import BLUE, Mark, Series
from mltrainer.figures.drawer import DRAWER
from mltrainer.figures.figure import Figure
from mltrainer.questions.learning_rate.report import sentence
from mltrainer.reports.values import as_float, number

Found = dict[str, Any]


def rate_figure(found: Found) -> Figure:
    """Return the losses over the learning rate; the axis ends a little above where the loss began, not where it diverged."""
    losses, smoothed = (_points(found, key) for key in ("losses", "smoothed"))
    top = 1.5 * max((abs(y) for _, y in smoothed[: max(3, len(smoothed) // 10)] if math.isfinite(y)), default=math.inf)
    series = [Series("loss of each step", _below(losses, top), dots=True), Series("smoothed", _below(smoothed, top))]
    marks = [Mark(found["present"], f"now: {number(found['present'])}", BLUE)]
    if found["suggestion"] is not None:
        marks.append(Mark(found["suggestion"], f"suggested: {number(found['suggestion'])}"))
    title, caption = "Learning-rate range test", sentence(found)
    chart = DRAWER.line_chart(
        title, caption, series, x_label="learning rate (log scale)", y_label="loss", log_x=True, marks=marks
    )
    return Figure("learning_rate_range.svg", title, caption, chart)


def _points(found: Found, key: str) -> list[tuple[float, float]]:
    return [(rate, as_float(loss)) for rate, loss in zip(found["rates"], found[key], strict=True)]


def _below(points: list[tuple[float, float]], top: float) -> list[tuple[float, float]]:
    return [point for point in points if not point[1] > top]
