"""The names of a search's report beside its record: rows of tables, and advice on the next search."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.configs.loading import at
from mltrainer.records.optimization import Searched, Trained, Trial
from mltrainer.records.pareto import RULE, feasible, front
from mltrainer.reports.advice import MIN_TRIALS, Search, advice, comparison_power, seed_spread, template_lines
from mltrainer.reports.space import name_of
from mltrainer.reports.values import as_float

Row = dict[str, Any]
MAX_TRIALS = 100  # rows of the table; the record holds all
MAX_NUMBERS = 8
_MISSING = object()
_NUMBER = re.compile(r"\d[\d.,]*(?:e[-+]?\d+)?")


def names(trials: Mapping[int, Row], record: Searched, judged: Mapping[str, Any]) -> Row:
    """Return the template's names beside the record.

    Args:
        trials: The search's trials by number, as plain data for templates.
        record: The search's evidence.
        judged: The gate's findings on the comparison.
    """
    search = Search(record)
    advised = advice(search)
    return {
        "failed": [trial.nr for trial in search.failed],
        "finished": 0 if record.best is None else len(search.finished),
        "unmet": len(search.finished) - len(search.candidates),
        "pruned": sum(trial.state == "pruned" for trial in record.trials),
        "changed": changed(record),
        "importances": _importances(search),
        "advice": advised,
        "template": template_lines(advised),
        "too_few": 0 < len(search.trials) < MIN_TRIALS,
        "asked": MIN_TRIALS,
        "rungs": rungs(record),
        "saved": saved(record),
        "reasons": reasons(search.failed),
        "retried": [trials[trial.nr] for trial in record.trials if trial.attempts > 1],
        "rows": shown(search, trials),
        "spread": seed_spread(record.comparison),
        "power": comparison_power(judged, len(record.comparison.seeds)),
        "budget": budget(record),
        "tradeoff": tradeoff(record),
        "left_out": max(0, (record.points or 0) - record.planned_trials),
    }


def tradeoff(search: Searched) -> Row | None:
    """Return the Pareto set of a search by several metrics, the best by the first metric first.

    Returns:
        `rule`; `rows`, each with the trial's number and its metrics in the order of `names`; and `level`, the numbers of the
        trials whose first metric is within the standard deviation between seeds of the taken trial's. None where there is one
        metric.
    """
    if not search.objectives:
        return None
    names, sign = [search.metric.name, *search.objectives], 1 if search.metric.mode == "max" else -1
    trials = feasible(search.trials, search.constraints)
    found = sorted(front(trials, search.metric.mode, search.objectives), key=lambda one: -sign * as_float(one.value))
    best, spread = next((one for one in found if one.nr == search.best), None), seed_spread(search.comparison)
    others = [one for one in found if one is not best]
    near = spread is not None and best is not None
    level = [one.nr for one in others if near and abs(as_float(one.value) - as_float(best and best.value)) <= (spread or 0.0)]
    rows = [{"nr": one.nr, "metrics": [one.value, *(one.objectives[name] for name in search.objectives)]} for one in found]
    figures = [f"tradeoff_{nr}.svg" for nr in range(1, len(names))]
    return {"rule": RULE, "names": names, "rows": rows, "level": level, "spread": spread, "figures": figures}


def budget(search: Searched) -> list[Row]:
    """Return the training budget of each side of the comparison, summed over its runs; empty where it was not counted."""
    return [{"side": name, "epochs": side.epochs, **_all_of(side)} for name, side in sorted(search.comparison.budget.items())]


def _all_of(side: Trained) -> Row:
    known = [count for count in side.samples if count is not None]
    return {"steps": sum(side.steps) or None, "samples": sum(known) if len(known) == len(side.samples) else None}


def changed(search: Searched) -> list[Row]:
    """Return the searched keys with the best trial's value and the baseline's; empty where the baseline's are not known."""
    best = next((trial.values for trial in search.trials if trial.nr == search.best), {})
    known = search.baseline.values
    if not known and search.promoted == "baseline":
        known = {key: value for key in best if (value := at(search.config, key, _MISSING)) is not _MISSING}
    if not best or not known:
        return []
    return [{"key": key, **_entry("before", known, key), **_entry("after", best, key)} for key in sorted({*known, *best})]


def _entry(name: str, values: Mapping[str, Any], key: str) -> Row:
    return {name: values[key]} if key in values else {}


def _importances(search: Search) -> list[Row]:
    rows = []
    for row in search.importances:
        having = [trial for trial in search.trials if row.dimension.key in trial.values]
        best = [trial.values[row.dimension.key] for trial in having[: row.top]]
        ends = {"best": _ends(best), "ends": True} if row.dimension.form != "choice" else {"best": _most(best), "ends": False}
        rows.append(
            {"key": row.dimension.key, "share": row.share, "p": row.p_value, "clear": row.is_clear, "trials": row.trials}
            | {"top": row.top, **ends}
        )
    return rows


def _ends(values: Sequence[Any]) -> list[Any]:
    return [min(values, key=as_float), max(values, key=as_float)]


def _most(values: Sequence[Any]) -> list[Any]:
    """Return the three most frequent values, the most frequent first."""
    by_name, counts = {name_of(value): value for value in values}, Counter(map(name_of, values))
    return [by_name[name] for name, _ in counts.most_common(3)]


def rungs(search: Searched) -> list[Row]:
    """Return the number of trials that reached each rung, and of those that were stopped there."""
    trained = [_epochs(trial) for trial in search.trials]
    stopped = [trial.pruned_at for trial in search.trials]
    return [
        {"epoch": rung, "reached": sum(epochs >= rung for epochs in trained), "stopped": stopped.count(rung)}
        for rung in search.rungs
    ]


def _epochs(trial: Trial) -> float:
    """Return the number of epochs that a trial was trained, by its evaluations."""
    return trial.pruned_at or (trial.curve[-1][0] if trial.curve else 0)


def saved(search: Searched) -> Row | None:
    """Return the epochs saved by pruning, those planned for all trials, and the share; None where no trial was pruned."""
    stopped = [trial for trial in search.trials if trial.state == "pruned"]
    if not stopped:
        return None
    planned: Any = next((row.after for row in search.cheaper if row.key == "epochs"), search.config.get("epochs"))
    asked = {trial.nr: trial.values.get("epochs", planned) for trial in search.trials}
    whole, left_out = sum(asked.values()), round(sum(asked[trial.nr] - _epochs(trial) for trial in stopped), 1)
    return {"epochs": left_out, "of": whole, "share": left_out / whole if whole else 0.0}


def reasons(failed: Sequence[Trial]) -> list[Row]:
    """Return the failed trials by reason, the most frequent first; reasons that differ only in a number are one."""
    groups: dict[str, list[Trial]] = {}
    for trial in failed:
        groups.setdefault(_NUMBER.sub("#", trial.reason or ""), []).append(trial)
    largest = sorted(groups.values(), key=len, reverse=True)
    return [{"reason": found[0].reason, "count": len(found), "trials": _first(found)} for found in largest]


def _first(trials: Sequence[Trial]) -> str:
    """Return the trials' numbers in words, at most `MAX_NUMBERS` of them."""
    numbers = ", ".join(str(trial.nr) for trial in trials[:MAX_NUMBERS])
    return numbers if len(trials) <= MAX_NUMBERS else f"{numbers} and {len(trials) - MAX_NUMBERS:,} more"


def shown(search: Search, trials: Mapping[int, Row]) -> list[Row]:
    """Return the trials of the table: all in their order, or the best `MAX_TRIALS` where there are more."""
    return [*trials.values()] if len(trials) <= MAX_TRIALS else [trials[trial.nr] for trial in search.trials[:MAX_TRIALS]]
