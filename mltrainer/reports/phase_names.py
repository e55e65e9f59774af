"""The names of a phase's template beside its record: values computed from its evidence and its gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from mltrainer.records.baseline import Baseline
from mltrainer.records.common import Part
from mltrainer.records.diagnostics import Diagnostics
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.openings import looks
from mltrainer.records.optimization import Searched
from mltrainer.records.planning import Data, Planning, Stopped, UnsoundData
from mltrainer.reports import tuning
from mltrainer.reports.decisions import next_command
from mltrainer.reports.gate_items import Items
from mltrainer.reports.model_card import card
from mltrainer.reports.values import as_float
from mltrainer.reports.views import SHOWN_LATER, fired, gains, record_of

Names = dict[str, Any]
IMPROVEMENT = "improvement_validated"


def names(record: Names, gate: Items) -> Names:
    """Return the names for the templates of a record's phase; the record's own parts are plain data."""
    content, evidence = record_of(record), record["evidence"]
    rows = zip(content.figures, record["figures"], strict=True)
    common = {"record": record, "evidence": evidence, "gate": gate, "run": evidence.get("run")}
    common["verdict"] = record.get("verdict")  # a referee's, on a final record
    common["figures"] = {model.file.rsplit("/", 1)[-1]: row for model, row in rows}
    common["fired"] = fired(evidence.get("diagnostics") or [])
    if isinstance(content.evidence, Searched):
        return common | _search(content, evidence["trials"], gate)
    worked_out = _NAMES.get(type(content.evidence))
    return common | (worked_out(content.evidence) if worked_out else {})


def _planning(evidence: Planning) -> Names:
    peak, available = as_float(evidence.estimate.peak_mb), as_float(evidence.estimate.available_mb)
    share = peak / available if available else math.nan
    return {"memory_share": share, "data_bytes": _bytes(evidence.data)}


def _bytes(data: Data) -> int:
    return sum(row.size for row in data.files)


def _baseline(evidence: Baseline) -> Names:
    share = as_float(evidence.run.wall_s) / 60 / as_float(evidence.budget_minutes)
    return {"budget_share": share, "shown_apart": ["learning_curves.svg", "metric.svg", *SHOWN_LATER]}


def _diagnostics(evidence: Diagnostics) -> Names:
    found = [row for row in evidence.diagnostics if row.state == "fired"]
    command = next_command(evidence.recommendation, found)
    return {"shown_later": SHOWN_LATER, "next_command": command}


def _search(content: Envelope[Searched], trials: list[Names], gate: Items) -> Names:
    search = content.evidence
    judged, states = judge(content.policy, gate), [trial.state for trial in search.trials]
    spent = [as_float(trial.wall_s) for trial in search.trials]
    rows = {trial.nr: row for trial, row in zip(search.trials, trials, strict=True)}
    return {
        **tuning.names(rows, search, judged),
        "judged": judged,
        "gains": gains(search),
        "searched": sorted({key for trial in search.trials for key in trial.values}),
        "best": None if search.best is None else rows.get(search.best),
        "trial_states": ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "none",
        "trial_time": math.fsum(seconds for seconds in spent if math.isfinite(seconds)),
    }


def judge(policy: Mapping[str, Any], gate: Items) -> Names:
    """Return the test of the improvement: its p-value as the gate computed it, its level as the policy sets it."""
    item = next((item for item in gate if item.id == IMPROVEMENT), None)
    rows = [row for row in policy.get("items") or [] if row["id"] == IMPROVEMENT]
    level = rows[0]["settings"].get("level") if rows else None
    evidence = item.evidence if item else {}
    measured = {key: evidence.get(key) for key in ("p_value", "interval", "effect_size", "seeds_needed", "comparison")}
    tested = {"improved": item is not None and item.verdict == "pass", "level": evidence.get("level") or level}
    return {**measured, **tested, "whole_level": level}


def _finalization(evidence: Finalization) -> Names:
    opened = looks(evidence.test.openings, evidence.test.splits, evidence.run.data_sha256, evidence.run.id)
    return {"card": card(evidence), "looks": opened.sentence, "models_tested": opened.models}


_NAMES: dict[type[Part], Callable[[Any], Names]] = {
    Planning: _planning,
    Stopped: lambda _evidence: {"memory_share": math.nan, "data_bytes": 0},
    UnsoundData: lambda evidence: {"memory_share": math.nan, "data_bytes": _bytes(evidence.data)},
    Baseline: _baseline,
    Diagnostics: _diagnostics,
    Finalization: _finalization,
}
