"""The figure of a range test: the loss over the learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mltrainer.figures.canvas import BLUE, Mark
from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.questions.learning_rate.findings import RangeTest
from mltrainer.questions.learning_rate.report import sentence
from mltrainer.reports.values import number


def rate_figure(test: RangeTest, present: float) -> Figure:
    """Return the losses over the learning rate; the axis ends a little above where the loss began, not where it diverged.

    Args:
        test: The range test.
        present: The learning rate of the config.
    """
    losses, smoothed = (list(zip(test.rates, values, strict=True)) for values in (test.losses, test.smoothed))
    # By the first losses: those of the divergence would press the rest into one line.
    top = 1.5 * max((abs(y) for _, y in smoothed[: max(3, len(smoothed) // 10)] if math.isfinite(y)), default=math.inf)
    series = [Series("loss of each step", _below(losses, top), dots=True), Series("smoothed", _below(smoothed, top))]
    marks = [Mark(present, f"now: {number(present)}", BLUE)]
    if test.suggestion is not None:
        marks.append(Mark(test.suggestion, f"suggested: {number(test.suggestion)}"))
    title, caption = "Learning-rate range test", sentence(test)
    chart = line_chart(title, caption, series, x_label="learning rate (log scale)", y_label="loss", log_x=True, marks=marks)
    return Figure("learning_rate_range.svg", title, caption, chart)


def _below(points: Sequence[tuple[float, float]], top: float) -> list[tuple[float, float]]:
    # `not >`, which keeps NaN: the chart shows it as a gap.
    return [point for point in points if not point[1] > top]
