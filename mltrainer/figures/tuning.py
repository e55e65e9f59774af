"""The figures of a search: its trials, and the comparison of its winner with the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mltrainer.figures.content import Figure
from mltrainer.figures.drawer import DRAWER
from mltrainer.figures.search import of_space
from mltrainer.figures.series import Series
from mltrainer.reports.values import as_float, given, number, signed, visible
from mltrainer.reports.views import gains

Evidence = dict[str, Any]


def of_search(evidence: Evidence) -> list[Figure]:
    """Return the figures that a search's evidence has the numbers for; none of one that was skipped."""
    if evidence["skipped"]:
        return []
    drawn = [trials(evidence), comparison(evidence), *of_space(evidence)]
    return [figure for figure in drawn if figure is not None]


def trials(evidence: Evidence) -> Figure | None:
    """Every trial's metric, the best so far, and the baseline's."""
    points = [(as_float(trial["nr"]), as_float(trial["value"])) for trial in evidence["trials"]]
    if not points:
        return None
    name, pick = visible(evidence["metric"]["name"]), _pick(evidence)
    stopped = [trial["state"] == "pruned" for trial in evidence["trials"]]
    ended = [(x, math.nan if early else y) for (x, y), early in zip(points, stopped, strict=True)]
    whole = [y for _, y in ended if math.isfinite(y)]
    base = as_float(evidence["baseline"]["value"])
    series = [Series("best so far", _best_so_far(ended, pick))]
    if math.isfinite(base):
        series.append(Series("baseline", [(ended[0][0], base), (ended[-1][0], base)], dashed=True))
    if any(stopped):
        at_rungs = [point for point, early in zip(points, stopped, strict=True) if early]
        points = [point for point, early in zip(points, stopped, strict=True) if not early]
        series.append(Series("stopped at a rung", at_rungs, dots=True))
    series.append(Series("trial", points, dots=True))
    best = f"{number(pick(whole), 5)} (trial {number(evidence['best'])})" if whole else "none, all failed"
    caption = f"Best {name} of the {number(len(ended))} trials: {best}; the baseline has {_base(base)}."
    return Figure("trials.svg", "Trials", caption, DRAWER.line_chart("Trials", caption, series, x_label="trial", y_label=name))


def _base(value: float) -> str:
    return number(value, 5) if math.isfinite(value) else "no finite value"


def _pick(evidence: Evidence) -> Callable[..., float]:
    return min if evidence["metric"]["mode"] == "min" else max


def _best_so_far(points: list[tuple[float, float]], pick: Callable[..., float]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for x, y in points:
        if math.isfinite(y):
            found.append((x, pick(y, found[-1][1]) if found else y))
        elif found:
            found.append((x, found[-1][1]))
    return found


def comparison(evidence: Evidence) -> Figure | None:
    """How much better the candidate is than the baseline, seed by seed."""
    rows = gains(evidence)
    if not rows:
        return None
    title, name = "Candidate against baseline, seed by seed", visible(evidence["metric"]["name"])
    above = sum(as_float(row["gain"]) > 0 for row in rows)
    mean = signed(evidence["comparison"]["mean_difference"])
    seeds = f"{number(above)} of {number(len(rows))} seeds"
    caption = f"The candidate is better than the baseline for {seeds}, by {mean} {name} on average."
    items = [(f"seed {given(row['seed'])}", as_float(row["gain"])) for row in rows]
    chart = DRAWER.bars(title, caption, items, unit=f"improvement of {name}", sign=True)
    return Figure("comparison.svg", title, caption, chart)
