"""The figures of a search's space; too few trials give none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mltrainer.figures import trial_figures
from mltrainer.figures.axes import Scale, linear, logarithmic
from mltrainer.figures.content import Figure
from mltrainer.figures.trial_figures import Curve, Marked, Panel
from mltrainer.records.optimization import Searched, Trial
from mltrainer.reports.importance import Importance, importances, ranked
from mltrainer.reports.space import Dimension, dimensions
from mltrainer.reports.values import as_float, counted, cut, number, share, visible
from mltrainer.reports.views import evenly

Trials = Sequence[Trial]
MIN_TRIALS = 8  # chosen by us: fewer points show no shape, and the table has them all
MAX_PANELS, MAX_AXES = 8, 7
MAX_DOTS, MAX_LINES, MAX_CURVE = 240, 90, 24


def of_space(search: Searched) -> list[Figure]:
    """Return the slices, the plane of the two most important dimensions, the parallel coordinates and the trials' curves."""
    trials = ranked(search.trials, search.metric.mode)
    ranked_nrs = {trial.nr for trial in trials}
    found = [curves(search, [*trials, *(trial for trial in search.trials if trial.nr not in ranked_nrs)])]
    if len(trials) >= MIN_TRIALS:
        space = dimensions(search.space)
        mattering = importances(space, trials)
        order = {row.dimension.key: nr for nr, row in enumerate(mattering)}
        space = sorted(space, key=lambda dimension: (order.get(dimension.key, len(order)), dimension.key))
        found = [slices(search, trials, space), plane(search, trials, mattering), parallel(search, trials, space), *found]
    return [figure for figure in found if figure is not None]


def _name(search: Searched) -> str:
    return visible(search.metric.name)


def _with_ranks(trials: Trials, limit: int) -> list[tuple[Trial, float]]:
    """Return at most `limit` trials with their rank from 0 to 1: half of them the best, half evenly from the others."""
    count, best = len(trials), limit // 2
    rest = [best + place for place in evenly(max(0, count - best), limit - best)]
    places = [*range(min(best, count)), *rest]
    return [(trials[place], 1 - place / max(1, count - 1)) for place in places]


def _drawn_share(shown: int, trials: Trials) -> str:
    return "" if shown == len(trials) else f"; {number(shown)} of {number(len(trials))} trials are drawn"


def axis(dimension: Dimension) -> Scale:
    """Return a dimension's axis: a tick for each choice, or its range."""
    if dimension.form == "choice":
        return _choices(dimension)
    ends = [as_float(value) for value in dimension.values]
    return logarithmic(ends) if dimension.is_log else linear(ends, 4, tight=True)


def _panel_axis(dimension: Dimension) -> Scale:
    """Return a dimension's axis with no more ticks than fit into half a figure's width."""
    found = axis(dimension)
    powers = tuple(tick for tick in found.ticks if tick[0] == int(tick[0]))
    return replace(found, ticks=powers) if found.log and len(found.ticks) > 5 else found


def _choices(dimension: Dimension) -> Scale:
    names = [cut(visible(_plain(value)), 12) for value in dimension.values]
    ticks = tuple((float(nr), names[nr]) for nr in evenly(len(names), 6))
    return Scale(-0.5, len(names) - 0.5, ticks)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_plain, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def focused(values: Sequence[float], mode: str) -> tuple[Scale, int]:
    """Return a vertical axis and the number of values beyond it: the worst tenth, where it is far from the others.

    Args:
        values: The finite values, at least one.
        mode: The better direction, "max" or "min".
    """
    best_first = sorted(values, reverse=mode != "min")
    kept = best_first[: math.ceil(len(values) * 0.9)]
    if abs(best_first[0] - best_first[-1]) <= 3 * abs(kept[0] - kept[-1]):
        return linear(values), 0
    scale = linear(kept)
    return scale, sum(not scale.low <= value <= scale.high for value in values)


def _beyond(count: int) -> str:
    return f"; {counted(count, 'trial')} far off and not drawn" if count else ""


def _values(trials: Trials) -> list[float]:
    return [as_float(trial.value) for trial in trials]


def _left_out(space: Sequence[Dimension], limit: int) -> str:
    return f"; the {number(limit)} most important of {number(len(space))} keys" if len(space) > limit else ""


def slices(search: Searched, trials: Trials, space: Sequence[Dimension]) -> Figure | None:
    """Return the metric over each dimension for trials trained to their end; those stopped at a rung are not comparable."""
    trials = [trial for trial in trials if trial.state == "finished"]
    if not space or len(trials) < MIN_TRIALS:
        return None
    y, beyond = focused(_values(trials), search.metric.mode)
    chosen, name = _with_ranks(trials, MAX_DOTS), _name(search)
    panels = [Panel(one.key, _panel_axis(one), _along(one, chosen)) for one in space[:MAX_PANELS]]
    drawn = f"{_left_out(space, MAX_PANELS)}{_beyond(beyond)}{_drawn_share(len(chosen), trials)}"
    caption = f"Validation {name} of {counted(len(trials), 'trial')} that trained to the end, over each searched key{drawn}."
    title = f"{name} over each searched key"
    return Figure("slices.svg", title, caption, trial_figures.small_multiples(title, caption, panels, y, y_label=name))


def _along(dimension: Dimension, chosen: Sequence[tuple[Trial, float]]) -> list[Marked]:
    return [
        Marked(dimension.number(trial.values[dimension.key]), as_float(trial.value), rank)
        for trial, rank in chosen
        if dimension.key in trial.values
    ]


def plane(search: Searched, trials: Trials, mattering: Sequence[Importance]) -> Figure | None:
    """Return the trials over the two most important dimensions; None where neither clearly matters."""
    if len(mattering) < 2 or not mattering[0].is_clear:
        return None
    across, up = (row.dimension for row in mattering[:2])
    trials = [trial for trial in trials if {across.key, up.key} <= trial.values.keys()]
    chosen = _with_ranks(trials, MAX_DOTS)
    points = [Marked(_on(across, trial), _on(up, trial), rank) for trial, rank in chosen]
    both = share(mattering[0].share + mattering[1].share)
    names = f"{visible(across.key)} and {visible(up.key)}"
    caption = f"{names}: {both} of the importance; the ranks are of {_name(search)}{_drawn_share(len(points), trials)}."
    title = "The two keys that mattered most"
    chart = trial_figures.plane(title, caption, points, axis(across), axis(up), x_label=across.key, y_label=up.key)
    return Figure("important.svg", title, caption, chart)


def parallel(search: Searched, trials: Trials, space: Sequence[Dimension]) -> Figure | None:
    """Return the parallel coordinates: for each trial a line through all of its values."""
    if len(space) < 2:
        return None
    ended = _values([trial for trial in trials if trial.state == "finished"])
    y, beyond = focused(ended or _values(trials), search.metric.mode)
    chosen, kept = _with_ranks(trials, MAX_LINES), space[:MAX_AXES]
    lines = [([*(_on(one, trial) for one in kept), _clamped(y, trial)], rank) for trial, rank in chosen]
    name, title = _name(search), "All values of each trial"
    early = ", which those that were stopped at a rung do not reach" if len(ended) < len(trials) else ""
    drawn = f"{_ends(beyond)}{_left_out(space, MAX_AXES)}{_drawn_share(len(chosen), trials)}"
    caption = f"Each line is a trial; the last axis is {name}{early}{drawn}."
    axes = [*((one.key, axis(one)) for one in kept), (name, y)]
    return Figure("parallel.svg", title, caption, trial_figures.parallel(title, caption, axes, lines))


def _ends(beyond: int) -> str:
    return f"; {counted(beyond, 'trial')} far off are drawn at its end" if beyond else ""


def _on(dimension: Dimension, trial: Trial) -> float:
    return dimension.number(trial.values[dimension.key]) if dimension.key in trial.values else math.nan


def _clamped(scale: Scale, trial: Trial) -> float:
    return min(max(as_float(trial.value), scale.low), scale.high) if trial.state == "finished" else math.nan


def curves(search: Searched, trials: Trials) -> Figure | None:
    """Return the metric of every trial over its epochs, where the trials were evaluated more than once."""
    with_curves = [trial for trial in trials if trial.curve]
    chosen, name = _with_ranks(with_curves, MAX_LINES), _name(search)
    lines = [Curve(_points(trial), rank, trial.state == "pruned") for trial, rank in chosen]
    if not any(len(line.points) > 1 for line in lines):
        return None
    y, _ = focused([value for line in lines for _, value in line.points], search.metric.mode)
    x = linear([epoch for line in lines for epoch, _ in line.points], 8, tight=True)
    stopped = sum(trial.state == "pruned" for trial in with_curves)
    ends = f"; {number(stopped)} were stopped at a rung" if stopped else ""
    title, caption = (
        "Learning curves of the trials",
        f"Validation {name} of {counted(len(with_curves), 'trial')}{ends}{_drawn_share(len(chosen), with_curves)}.",
    )
    return Figure("curves.svg", title, caption, trial_figures.bundle(title, caption, lines, x, y, x_label="epoch", y_label=name))


def _points(trial: Trial) -> list[tuple[float, float]]:
    """Return a trial's finite evaluations, thinned evenly."""
    found = [(float(epoch), as_float(value)) for epoch, value in trial.curve if math.isfinite(as_float(value))]
    return [found[place] for place in evenly(len(found), MAX_CURVE)]
