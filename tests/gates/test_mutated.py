"""Which measured values decide each item: every value that a check reads is broken on purpose, and its verdict watched.

The table is generated from the models and compared with the one below. A check that stops looking at a value, or at one of two
runs, is missing from its own line here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.pages import Item, phase_page
from mltrainer.gates.checks import run_check
from mltrainer.gates.checks.planning import SWITCHES
from mltrainer.records.common import Part
from mltrainer.records.envelope import parsed
from mltrainer.workspace import PHASES
from tests.gates.evidence import kept, typed
from tests.projects import recorded

Place = tuple[str | int, ...]
Record = dict[str, Any]


def finished_record(phase: str, finished: Path) -> Record:
    return kept(phase) if phase == "optimization" else recorded(finished, phase)


def named(part: Any, path: Place = ()) -> Iterator[tuple[int, Place]]:
    """Yield each model in a record by its identity, with its path."""
    if isinstance(part, Part):
        yield id(part), path
        for name, field in type(part).model_fields.items():
            yield from named(part.__dict__[name], (*path, field.alias or name))
    elif isinstance(part, list):
        for nr, item in enumerate(part):
            yield from named(item, (*path, nr))
    elif isinstance(part, dict):
        for key, item in part.items():
            yield from named(item, (*path, key))


def read_by(item: Item, record: Record, monkeypatch: pytest.MonkeyPatch) -> set[Place]:
    """Return the path of each value that an item's check reads; of a list's rows, the first and the last."""
    whole = typed(record)
    places, read = dict(named(whole)), set()
    plain = Part.__getattribute__

    def watched(self: Part, name: str) -> Any:
        if id(self) in places and name in type(self).model_fields:
            read.add((*places[id(self)], type(self).model_fields[name].alias or name))
        return plain(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(Part, "__getattribute__", watched)
        run_check(item.id, whole, item.settings)
    return {path for path in read - set(places.values()) if is_at_an_end(path, record)}


def is_at_an_end(path: Place, place: Any) -> bool:
    for part in path:
        if isinstance(part, int) and part not in (0, len(place) - 1):
            return False
        place = place.get(part) if isinstance(place, dict) else place[part]
    return True


def at(record: Any, path: Place) -> Any:
    for part in path[:-1]:
        record = record[part]
    return record.get(path[-1]) if isinstance(record, dict) else record[path[-1]]


def put(place: Any, path: Place, value: Any) -> Any:
    """Return a copy of plain data with a value at a path."""
    if not path:
        return value
    first, *rest = path
    changed = list(place) if isinstance(place, list) else dict(place)
    changed[first] = put(place.get(first) if isinstance(place, dict) else place[first], tuple(rest), value)
    return changed


DECIDED_BY = {
    "planning": {
        "config_valid": "config config_sha256",
        "seeds_fixed": "config probe.runs probe.runs.*.determinism.PYTHONHASHSEED probe.runs.*.draws probe.runs.*.init_sha256",
        "determinism_on": "probe.runs "
        + " ".join(sorted(f"probe.runs.*.determinism.{name}" for name in (*SWITCHES, "tensorflow", "jax_backend"))),
        "environment_captured": "environment.distributions environment.distributions.*.name environment.distributions.*.version",
        "source_recorded": "source.sha256",
        "data_valid": "config data.findings.*.severity data.sha256 data.splits.train.samples data.splits.validation.samples",
        "probe_identical": "probe.runs probe.runs.*.chain_head probe.runs.*.steps probe.runs.*.weights_sha256 "
        "probe.runs.*.weights_tree_sha256",
        "export_rehearsed": "rehearsal.exports rehearsal.exports.*.agrees rehearsal.exports.*.state rehearsal.fault",
        "memory_fits": "estimate.available_mb estimate.device_peak_mb estimate.peak_mb",
        "time_within_budget": "config estimate.minutes",
        "no_secrets": "secrets.found secrets.scanned",
    },
    "baseline": {
        "finished": "run.chain.entries run.history run.history.*.step run.state run.steps run.stop_reason",
        "losses_finite": "run.history run.history.*.grad_norm.max run.history.*.train run.history.*.train_loss "
        "run.history.*.validation run.nonfinite",
        "checkpoints_verified": "run.best.step run.checkpoints run.checkpoints.*.files run.checkpoints.*.roles "
        "run.checkpoints.*.verified",
        "inputs_planned": "unplanned",
        "within_time_budget": "budget_minutes run.wall_s",
        "gpu_utilization": "run.device",
    },
    "diagnostics": {
        "curves_analysed": "assessment.curves evaluations",
        "fit_assessed": "assessment.fit",
        "gradients_checked": "assessment.gradients",
        "triggers_evaluated": "diagnostics diagnostics.*.id diagnostics.*.reason expected_diagnostics",
        "recommendation_given": "recommendation",
    },
    "optimization": {
        "tuning_finished": "planned_trials trials trials.*.nr",
        "best_config_identified": "best metric.mode replay.identical trials trials.*.value",
        "improvement_validated": "comparison.baseline comparison.budget comparison.budget.baseline.epochs "
        "comparison.budget.candidate.epochs comparison.candidate comparison.number comparison.seeds metric.mode",
    },
    "finalization": {
        "training_finished": "run.chain.entries run.history run.history.*.step run.state run.steps run.stop_reason",
        "final_run_diagnosed": "assessment.beats_constant diagnostics diagnostics.*.id diagnostics.*.reason diagnostics.*.state "
        "expected_diagnostics",
        "exports_agree": "exports exports.*.agrees exports.*.max_difference exports.*.relative_difference exports.*.state",
        "documentation_written": "model_files model_files.*.path model_files.*.size",
        "reproduction_verified": "reproduction.chain_head reproduction.identical reproduction.steps_compared "
        "reproduction.weights_sha256 reproduction.weights_tree_sha256 run.chain.head run.steps run.weights_sha256 "
        "run.weights_tree_sha256",
        "test_opened_once": "delivered_sha256 test.openings test.openings.*.weights_sha256 test.samples",
        "acceptance_met": "config test.metrics test.samples",
        "source_committed": "source.commit source.dirty",
    },
}
WORDS = ("", "0", "nan", "failed", "error", "fired", "cuda", "min", "max", "signal")
PARTS = (  # of lists and options that are empty in a sound record
    [{"path": "a.yaml", "line": 1, "kind": "key"}],
    {"what": "x", "where": None, "mend": None},
    {"step": 1, "epoch": 1, "what": "loss", "samples": []},
)
OTHERS = (*WORDS, 0, 1, -1, 0.5, 10**9, None, True, False, ["0"], *PARTS)


def broken(value: Any) -> list[Any]:
    """Return what to put in a value's place; what the record's model refuses there is left out later."""
    if isinstance(value, list) and value:
        return [[], [*value[:-1], *broken(value[-1])[:1]], value * 30]
    if isinstance(value, dict) and value:
        return [{}, *({**value, key: other} for key in (min(value), max(value)) for other in broken(value[key]))]
    return [not value, None] if isinstance(value, bool) else list(OTHERS)


def decides(item: Item, record: Record, path: Place) -> bool:
    """Return whether some other value there makes the item fail."""
    for value in broken(at(record, path)):
        whole, _ = parsed(put(record, path, value), record["phase"])
        if whole is not None and run_check(item.id, whole, item.settings).verdict == "fail":
            return True
    return False


def shown(path: Place) -> str:
    return ".".join("*" if isinstance(part, int) else part for part in path if part != "evidence")


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_what_decides_an_item_is_what_it_is_said_to_look_at(phase, digits_once, monkeypatch):
    record, found = finished_record(phase, digits_once), {}
    for item in phase_page(phase, None).items:
        assert run_check(item.id, typed(record), item.settings).verdict != "fail", item.id
        found[item.id] = {shown(path) for path in read_by(item, record, monkeypatch) if decides(item, record, path)}
    assert {name: " ".join(sorted(paths)) for name, paths in found.items()} == DECIDED_BY[phase]
