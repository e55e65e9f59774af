"""What the report of a search shows beside its record: rows of tables, and the sentences on what to search next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.reports.advice import MIN_TRIALS, Search, advice, comparison_power, seed_spread, template_lines
from mltrainer.reports.space import name_of
from mltrainer.reports.values import as_float, at

Row = dict[str, Any]
MAX_TRIALS = 100  # rows of the table; the record holds all
MAX_NUMBERS = 8
_MISSING = object()
_NUMBER = re.compile(r"\d[\d.,]*(?:e[-+]?\d+)?")


def names(evidence: Mapping[str, Any], judged: Mapping[str, Any]) -> Row:
    """Return the template's names beside the record.

    Args:
        evidence: Of a search.
        judged: What the gate found of the comparison.
    """
    search = Search(evidence)
    found = advice(search)
    return {
        "failed": search.failed,
        "finished": len(search.finished),
        "pruned": sum(trial["state"] == "pruned" for trial in evidence["trials"]),
        "changed": changed(evidence),
        "importances": _importances(search),
        "advice": found,
        "template": template_lines(found),
        "too_few": 0 < len(search.trials) < MIN_TRIALS,
        "asked": MIN_TRIALS,
        "rungs": rungs(evidence),
        "saved": saved(evidence),
        "reasons": reasons(search.failed),
        "retried": [trial for trial in evidence["trials"] if trial.get("attempts", 1) > 1],
        "rows": shown(search),
        "spread": seed_spread(evidence["comparison"]),
        "power": comparison_power(judged, len(evidence["comparison"]["seeds"])),
        "budget": budget(evidence),
        "left_out": left_out(evidence),
    }


def budget(evidence: Mapping[str, Any]) -> list[Row]:
    """Return the training budget of each side of the comparison, summed over its runs; empty where it was not counted."""
    sides = evidence["comparison"].get("budget") or {}
    return [{"side": name, "epochs": side["epochs"], **_all_of(side)} for name, side in sorted(sides.items())]


def _all_of(side: Mapping[str, Any]) -> Row:
    known = [count for count in side["samples"] if count is not None]
    return {"steps": sum(side["steps"]), "samples": sum(known) if len(known) == len(side["samples"]) else None}


def left_out(evidence: Mapping[str, Any]) -> int:
    """Return the number of a grid's points without a planned trial."""
    return max(0, (evidence.get("points") or 0) - int(evidence["planned_trials"]))


def changed(evidence: Mapping[str, Any]) -> list[Row]:
    """Return the searched keys with the best trial's value and the baseline's; none where the baseline's are not known."""
    best = next((trial["values"] for trial in evidence["trials"] if trial["nr"] == evidence["best"]), None)
    known = evidence["baseline"].get("values") or {}
    if not known and evidence["promoted"] == "baseline":
        known = {key: at(evidence["config"], key) for key in best or {} if at(evidence["config"], key, _MISSING) is not _MISSING}
    if not best or not known:
        return []
    return [{"key": key, **_given("before", known, key), **_given("after", best, key)} for key in sorted({*known, *best})]


def _given(name: str, values: Mapping[str, Any], key: str) -> Row:
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


def rungs(evidence: Mapping[str, Any]) -> list[Row]:
    """Return the number of trials that reached each rung, and of those that were stopped there."""
    trained = [_epochs(trial) for trial in evidence["trials"]]
    stopped = [trial.get("pruned_at") for trial in evidence["trials"]]
    return [
        {"epoch": rung, "reached": sum(epochs >= rung for epochs in trained), "stopped": stopped.count(rung)}
        for rung in evidence.get("rungs") or []
    ]


def _epochs(trial: Mapping[str, Any]) -> float:
    """Return for how many epochs a trial was trained, as far as its evaluations tell."""
    curve = trial.get("curve") or []
    return trial.get("pruned_at") or (curve[-1][0] if curve else 0)


def saved(evidence: Mapping[str, Any]) -> Row | None:
    """Return the epochs saved by pruning, those planned for all trials, and the share; None where no trial was pruned."""
    stopped = [trial for trial in evidence["trials"] if trial["state"] == "pruned"]
    if not stopped:
        return None
    planned = next((row["after"] for row in evidence["cheaper"] if row["key"] == "epochs"), at(evidence, "config.epochs"))
    whole = sum(trial["values"].get("epochs", planned) for trial in evidence["trials"])
    left_out = round(sum(trial["values"].get("epochs", planned) - _epochs(trial) for trial in stopped), 1)
    return {"epochs": left_out, "of": whole, "share": left_out / whole if whole else 0.0}


def reasons(failed: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the failed trials by reason, the most frequent first; reasons that differ in a number alone are one."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for trial in failed:
        groups.setdefault(_NUMBER.sub("#", str(trial.get("reason") or "")), []).append(trial)
    rows = [{"reason": found[0].get("reason"), "count": len(found), "trials": _first(found)} for found in groups.values()]
    return sorted(rows, key=lambda row: -row["count"])


def _first(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the trials' numbers, as many as one reads."""
    told = ", ".join(str(trial["nr"]) for trial in trials[:MAX_NUMBERS])
    return told if len(trials) <= MAX_NUMBERS else f"{told} and {len(trials) - MAX_NUMBERS:,} more"


def shown(search: Search) -> list[Mapping[str, Any]]:
    """Return the trials of the table: all in their order, or of many the best."""
    trials = {trial["nr"]: trial for trial in search.evidence["trials"]}
    return list(trials.values()) if len(trials) <= MAX_TRIALS else [trials[trial.nr] for trial in search.trials[:MAX_TRIALS]]
