"""The figures of learning curves: what was measured, the power law, and how far it can be believed."""

from __future__ import annotations

from collections.abc import Sequence

from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.questions.data_scaling.findings import Curves, Fit
from mltrainer.questions.data_scaling.report import sentence
from mltrainer.reports.values import visible

PLACES = 24  # at which a law is drawn


def of_curves(found: Curves) -> list[Figure]:
    """Return the figures that there are the numbers for."""
    epochs, data = found.epochs, found.data
    figures = []
    if isinstance(epochs, Fit):
        figures.append(_drawn("epochs.svg", "Validation loss over the steps", epochs, epochs.points(), "step", "validation loss"))
    if isinstance(data, Fit):
        title, error = "Error over the training samples", visible(data.error)
        figures.append(_drawn("data.svg", title, data, data.points(), "training samples", error))
    return figures


def _drawn(file: str, title: str, curve: Fit, points: Sequence[tuple[float, float]], x_label: str, y_label: str) -> Figure:
    caption, ends = sentence(curve), curve.predictions
    first, last = min(x for x, _ in points), ends[-1].amount
    # Evenly spaced on the logarithmic axis.
    places = [first * (last / first) ** (nr / (PLACES - 1)) for nr in range(PLACES)]
    series = [
        Series("measured", points, dots=True),
        Series("power law", [(x, curve.floor + curve.scale * x**-curve.exponent) for x in places]),
        Series("low end", [(row.amount, row.low) for row in ends], dashed=True),
        Series("high end", [(row.amount, row.high) for row in ends], dashed=True),
    ]
    x_label, y_label = f"{x_label} (log scale)", f"{y_label} (log scale)"
    chart = line_chart(title, caption, series, x_label=x_label, y_label=y_label, log_x=True, log_y=True)
    return Figure(file, title, caption, chart)
