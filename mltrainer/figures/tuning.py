"""The figures of a search: its trials, and the comparison of its winner with the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable

from mltrainer.figures.content import Figure
from mltrainer.figures.search import of_space
from mltrainer.figures.series import Point, Series
from mltrainer.figures.svg import bars, line_chart
from mltrainer.records.optimization import Searched, Trial
from mltrainer.records.pareto import feasible, front
from mltrainer.reports.values import as_float, counted, given, number, signed, visible
from mltrainer.reports.views import gains


def of_search(search: Searched) -> list[Figure]:
    """Return the figures for which a search has the numbers."""
    drawn = [trials(search), comparison(search), *of_tradeoff(search), *of_space(search)]
    return [figure for figure in drawn if figure is not None]


def trials(search: Searched) -> Figure | None:
    """Each trial's metric, the best so far, and the baseline's."""
    points = [(as_float(trial.nr), as_float(trial.value)) for trial in search.trials]
    if not points:
        return None
    name, pick = visible(search.metric.name), min if search.metric.mode == "min" else max
    stopped = [trial.state == "pruned" for trial in search.trials]
    allowed = {trial.nr for trial in feasible(search.trials, search.constraints)}
    # A trial's value at a rung is not comparable with others' values at their end.
    ended = [(x, math.nan if early or x not in allowed else y) for (x, y), early in zip(points, stopped, strict=True)]
    whole = [y for _, y in ended if math.isfinite(y)]
    base = as_float(search.baseline.value)
    series = [Series("best so far", _best_so_far(ended, pick))]
    if math.isfinite(base):
        series.append(Series("baseline", [(ended[0][0], base), (ended[-1][0], base)], dashed=True))
    if any(stopped):
        at_rungs = [point for point, early in zip(points, stopped, strict=True) if early]
        points = [point for point, early in zip(points, stopped, strict=True) if not early]
        series.append(Series("stopped at a rung", at_rungs, dots=True))
    series.append(Series("trial", points, dots=True))
    none = "none, all failed or miss a constraint" if search.constraints else "none, all failed"
    best = f"{number(pick(whole), 5)} (trial {number(search.best)})" if whole else none
    caption = f"Best {name} of the {number(len(ended))} trials: {best}; the baseline has {_base(base)}."
    return Figure("trials.svg", "Trials", caption, line_chart("Trials", caption, series, x_label="trial", y_label=name))


def _base(value: float) -> str:
    return number(value, 5) if math.isfinite(value) else "no finite value"


def _best_so_far(points: list[tuple[float, float]], pick: Callable[..., float]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for x, y in points:
        if math.isfinite(y):
            found.append((x, pick(y, found[-1][1]) if found else y))
        elif found:
            found.append((x, found[-1][1]))
    return found


def comparison(search: Searched) -> Figure | None:
    """The candidate's improvement over the baseline, seed by seed."""
    rows = [(row["seed"], as_float(row["gain"])) for row in gains(search)]
    if not rows:
        return None
    title, name = "Candidate against baseline, seed by seed", visible(search.metric.name)
    above = sum(gain > 0 for _, gain in rows)
    mean = signed(search.comparison.mean_difference)
    seeds = f"{number(above)} of {number(len(rows))} seeds"
    caption = f"The candidate is better than the baseline for {seeds}, by {mean} {name} on average."
    items = [(f"seed {given(seed)}", gain) for seed, gain in rows]
    chart = bars(title, caption, items, unit=f"improvement of {name}", sign=True)
    return Figure("comparison.svg", title, caption, chart)


def of_tradeoff(search: Searched) -> list[Figure]:
    """Return a figure for each further metric, with the metric that trials are ranked by on the vertical axis."""
    return [figure for name in search.objectives if (figure := _tradeoff(search, name)) is not None]


def file_of(search: Searched, name: str) -> str:
    """Return the file name of the figure of a further metric."""
    return f"tradeoff_{[*search.objectives].index(name) + 1}.svg"


def _tradeoff(search: Searched, name: str) -> Figure | None:
    best = {trial.nr for trial in front(feasible(search.trials, search.constraints), search.metric.mode, search.objectives)}
    points = {trial.nr: _place(trial, name) for trial in search.trials if trial.state == "finished"}
    points = {nr: point for nr, point in points.items() if all(map(math.isfinite, point))}
    if not best & points.keys():
        return None
    others = [point for nr, point in points.items() if nr not in best]
    series = [Series("another is better", others, dots=True)] if others else []
    series.append(Series("Pareto set", [points[nr] for nr in sorted(best, key=points.__getitem__)], dots=True))
    taken = ""
    if search.best in points:
        series.append(Series("taken", [points[search.best]], dots=True))
        taken = f"; taken: trial {number(search.best)}"
    up, across = visible(search.metric.name), visible(name)
    directions = f"{up}: {search.metric.mode}, {across}: {search.objectives[name]}"
    caption = f"The Pareto set: {counted(len(best), 'trial')} of {number(len(points))} ({directions}){taken}."
    title = f"{up} against {across}"
    return Figure(file_of(search, name), title, caption, line_chart(title, caption, series, x_label=across, y_label=up))


def _place(trial: Trial, name: str) -> Point:
    return as_float(trial.objectives.get(name, math.nan)), as_float(trial.value)
