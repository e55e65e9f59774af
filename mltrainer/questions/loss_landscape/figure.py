"""The figures of a loss landscape: along one random direction, and over two."""

from __future__ import annotations

import math

from mltrainer.figures.axes import log_suits
from mltrainer.figures.canvas import Mark
from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import heat_map, line_chart
from mltrainer.questions.loss_landscape.findings import Landscape, Line, Plane
from mltrainer.reports.values import number

BESIDE = "distance along the direction (1: the weights' own norm)"


def of_landscape(found: Landscape) -> list[Figure]:
    """Return both figures."""
    return [_line(found.line), _plane(found.plane)]


def _line(line: Line) -> Figure:
    curves = {"training": line.train, "validation": line.validation}
    series = [Series(name, list(zip(line.places, losses, strict=True))) for name, losses in curves.items()]
    losses, middle = line.train, len(line.places) // 2
    caption = (
        f"Training loss {number(losses[middle])} at the checkpoint, {number(losses[0])} and {number(losses[-1])} at the ends "
        "of a random direction."
    )
    log = log_suits(y for one in series for _, y in one.points)
    axis = "loss (log scale)" if log else "loss"
    title = "Loss along a random direction"
    chart = line_chart(title, caption, series, x_label=BESIDE, y_label=axis, log_y=log, marks=[Mark(0.0, "the checkpoint")])
    return Figure("line.svg", title, caption, chart)


def _plane(plane: Plane) -> Figure:
    places, rows = plane.places, plane.losses
    center = rows[len(rows) // 2][len(places) // 2]
    every = [loss for row in rows for loss in row if math.isfinite(loss)] or [math.nan]
    near = sum(loss <= 2 * center for loss in every) / (len(places) * len(rows))
    caption = (
        f"Training loss {number(center)} at the checkpoint in the middle, {number(min(every))} to {number(max(every))} over the "
        f"plane; {number(100 * near)} % of it is within twice the checkpoint's."
    )
    title = "Loss over two random directions"
    named = [(f"{y:.3g}", row) for y, row in zip(places, rows, strict=True)]
    beside = "distance along the first direction (across) and the second (up)"
    # Turned around, as rows are drawn from the top and the second direction points up.
    chart = heat_map(title, caption, named[::-1], places, x_label=beside, scale_label="loss", terrain=True)
    return Figure("plane.svg", title, caption, chart)
