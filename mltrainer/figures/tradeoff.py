"""The trials of a search by several metrics: the Pareto set, and the one that was taken."""

from __future__ import annotations

import math

from mltrainer.figures.content import Figure
from mltrainer.figures.series import Point, Series
from mltrainer.figures.svg import line_chart
from mltrainer.records.optimization import Searched, Trial
from mltrainer.records.pareto import front
from mltrainer.reports.values import as_float, counted, number, visible


def of_tradeoff(search: Searched) -> list[Figure]:
    """Return a figure for each further metric, with the metric that trials are ranked by upwards."""
    return [figure for name in search.objectives if (figure := _tradeoff(search, name)) is not None]


def file_of(search: Searched, name: str) -> str:
    """Return the name of the figure of a further metric."""
    return f"tradeoff_{[*search.objectives].index(name) + 1}.svg"


def _tradeoff(search: Searched, name: str) -> Figure | None:
    best = {trial.nr for trial in front(search.trials, search.metric.mode, search.objectives)}
    points = {trial.nr: _place(trial, name) for trial in search.trials if trial.state == "finished"}
    points = {nr: point for nr, point in points.items() if all(map(math.isfinite, point))}
    if not best & points.keys():
        return None
    others = [point for nr, point in points.items() if nr not in best]
    series = [Series("another is better", others, dots=True)] if others else []
    series.append(Series("Pareto set", [points[nr] for nr in sorted(best, key=points.__getitem__)], dots=True))
    told = ""
    if search.best in points:
        series.append(Series("taken", [points[search.best]], dots=True))
        told = f"; taken: trial {number(search.best)}"
    up, across = visible(search.metric.name), visible(name)
    directions = f"{up}: {search.metric.mode}, {across}: {search.objectives[name]}"
    caption = f"The Pareto set: {counted(len(best), 'trial')} of {number(len(points))} ({directions}){told}."
    title = f"{up} against {across}"
    return Figure(file_of(search, name), title, caption, line_chart(title, caption, series, x_label=across, y_label=up))


def _place(trial: Trial, name: str) -> Point:
    return as_float(trial.objectives.get(name, math.nan)), as_float(trial.value)
