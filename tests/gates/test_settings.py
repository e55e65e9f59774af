"""Each threshold of a gate decides at its boundary, and a page cannot set one that means nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mltrainer import handbook
from mltrainer.configs.items import SETTINGS, is_weaker
from mltrainer.configs.pages import page_path, phase_page, policy_changes, policy_digest, shipped_page
from mltrainer.errors import InputError
from mltrainer.gates.gate import check_gates
from mltrainer.project.engine import write
from mltrainer.records.envelope import parsed
from mltrainer.reports.values import duration, minutes
from mltrainer.tasks.statistics import wilson
from mltrainer.workspace import PHASES, seal
from tests.gates.evidence import judged, kept, typed
from tests.projects import recorded

Record = dict[str, Any]


def estimate(**values: Any) -> Callable[[Record], None]:
    return lambda evidence: evidence["estimate"].update(values)


def run(**values: Any) -> Callable[[Record], None]:
    return lambda evidence: evidence["run"].update(values)


def steps(number: int) -> Callable[[Record], None]:
    return lambda evidence: [row.update(steps=number) for row in evidence["probe"]["runs"]]


def evaluations(number: int) -> Callable[[Record], None]:
    return lambda evidence: evidence.update(evaluations=number)


def pairs(number: int) -> Callable[[Record], None]:
    seeds = list(range(number))
    comparison = {"seeds": seeds, "baseline": [0.5] * number, "candidate": [0.5 + (seed + 1) / 100 for seed in seeds]}
    return lambda evidence: [evidence["comparison"].update(comparison), evidence.update(metric={"name": "r2", "mode": "max"})]


def difference(value: float) -> Callable[[Record], None]:
    return lambda evidence: [row.update(relative_difference=value) for row in evidence["exports"] if row["state"] == "written"]


def quantized_to(value: float) -> Callable[[Record], None]:
    """A model in 8 bits whose r2 is this, where the trained model's is 1."""
    told = {"share": 0.9, "size": 1, "original_size": 4, "latency_ms": 1.0, "original_latency_ms": 1.0}
    measured = {"metric": "r2", "value": value, "original": 1.0, "loss": 1.0 - value, "allowed": 0.25}

    def change(evidence: Record) -> None:
        evidence["run"]["best"]["validation"]["r2"] = 1.0
        row = evidence["exports"][1]
        evidence["exports"].append({**row, "format": "onnx_int8_dynamic", "tolerance": None, "quantized": {**told, **measured}})

    return change


def models(number: int) -> Callable[[Record], None]:
    def change(evidence: Record) -> None:
        ours = evidence["test"]["openings"][0]
        others = [{**ours, "nr": nr, "run": f"other{nr}", "weights_sha256": f"{nr:064x}"} for nr in range(2, number + 1)]
        evidence["test"]["openings"] = [ours, *others]

    return change


def kept_only(role: str) -> Callable[[Record], None]:
    def change(evidence: Record) -> None:
        evidence["run"]["saved"][f"save_{'last' if role == 'best' else 'best'}"] = False
        evidence["run"]["checkpoints"] = [
            {**row, "roles": [role]} for row in evidence["run"]["checkpoints"] if role in row["roles"]
        ]

    return change


def described_elsewhere(evidence: Record) -> None:
    """The run is described by another epoch than that of its best checkpoint."""
    evidence["run"]["best"] = {**evidence["run"]["best"], "step": evidence["run"]["best"]["step"] + 1}


def size(value: int) -> Callable[[Record], None]:
    return lambda evidence: [row.update(size=value) for row in evidence["model_files"]]


def coverage(covered: int) -> Callable[[Record], None]:
    """A share of 100 test samples is covered, of 90 % that were asked for; 99 validation samples calibrated it."""

    def change(evidence: Record) -> None:
        low, high = wilson(covered / 100, 100, statistics.NormalDist().inv_cdf(0.975))
        found = {
            "samples": 100,
            "covered": covered,
            "share": covered / 100,
            "level": 0.95,
            "interval": [low, high],
            "mean_size": 2.0,
        }
        evidence["config"] |= {"conformal": {"coverage": 0.9, "score": None}, "acceptance": {}}
        evidence["conformal"] = {"coverage": 0.9, "score": "residual", "threshold": 1.0, "samples": 99, "rank": 90}
        evidence["test"] |= {"samples": 100, "coverage": found}
        evidence["run"]["measured_samples"]["validation"] = 99

    return change


DEVICE = {"peak_mb": 1, "available_mb": 100, "device_total_mb": 1000}
BOUNDARIES: list[tuple[str, str, dict[str, Any], Callable[[Record], None], Callable[[Record], None]]] = [
    ("planning", "probe_identical", {"min_steps": 4}, steps(4), steps(3)),
    (
        "planning",
        "memory_fits",
        {"max_share": 0.9},
        estimate(peak_mb=90, available_mb=100),
        estimate(peak_mb=91, available_mb=100),
    ),
    (
        *("planning", "memory_fits", {"max_share": 0.9}),
        *(estimate(device_peak_mb=900, **DEVICE), estimate(device_peak_mb=901, **DEVICE)),
    ),
    ("planning", "time_within_budget", {}, estimate(minutes=60.0), estimate(minutes=60.001)),
    ("baseline", "within_time_budget", {}, run(wall_s=3600), run(wall_s=3600.1)),
    (
        *("baseline", "gpu_utilization", {"min_percent": 60}),
        run(device="cuda", gpu={"name": "x", "utilization": 61, "samples": 9}),
        run(device="cuda", gpu={"name": "x", "utilization": 60, "samples": 9}),
    ),
    ("baseline", "checkpoints_verified", {"demand": "both"}, run(), kept_only("last")),
    ("baseline", "checkpoints_verified", {"demand": "both"}, run(), kept_only("best")),
    ("baseline", "checkpoints_verified", {"described": True}, run(), described_elsewhere),
    ("diagnostics", "curves_analysed", {"min_evaluations": 3}, evaluations(3), evaluations(2)),
    ("optimization", "improvement_validated", {"seeds": 5, "level": 0.05}, pairs(5), pairs(4)),
    ("optimization", "improvement_validated", {"seeds": 1, "level": 0.1}, pairs(4), pairs(3)),
    ("finalization", "exports_agree", {"tolerance": 1e-4}, difference(1e-4), difference(math.nextafter(1e-4, 1))),
    ("finalization", "exports_agree", {"tolerance": 1e-4}, difference(0.0), difference(1.0)),
    (
        *("finalization", "exports_agree", {"tolerance": 1e-4, "metric_loss": 0.25}),
        *(quantized_to(0.75), quantized_to(math.nextafter(0.75, 0))),
    ),
    ("finalization", "test_opened_once", {"max_openings": 2}, models(2), models(3)),
    ("finalization", "documentation_written", {"files": "config.yaml"}, size(1), size(0)),
    # of 100 samples at most 79 or 78 are covered with a probability of 1.51 % and 0.97 %
    ("finalization", "acceptance_met", {"split": "test", "coverage_level": 0.01}, coverage(79), coverage(78)),
]


@pytest.mark.parametrize("case", range(len(BOUNDARIES)), ids=lambda nr: f"{BOUNDARIES[nr][1]}-{nr}")
def test_a_threshold_decides_at_its_boundary(case):
    phase, item, settings, holds, misses = BOUNDARIES[case]
    for change, verdict in ((holds, "pass"), (misses, "fail")):
        record = kept(phase)
        change(record["evidence"])
        assert judged(item, record, settings).verdict == verdict, change


def test_the_time_of_a_training_is_the_run_s_own_and_no_rounded_one():
    record = kept("baseline")
    run(wall_s=2.3281)(record["evidence"])
    found = judged("within_time_budget", record, {}).evidence["minutes"]
    assert minutes(found) == duration(2.3281) == "2.33 s"


def test_every_number_of_a_shipped_page_has_a_boundary_here():
    numbers = {(item, name) for item, model in SETTINGS.items() for name, field in model.model_fields.items() if field.metadata}
    asked = {(item, name) for _, item, settings, *_ in BOUNDARIES for name in settings}
    assert numbers <= asked


def test_what_the_config_did_not_keep_is_not_asked_for_by_pages_that_did_not_say_so():
    record = kept("baseline")
    kept_only("last")(record["evidence"])
    assert judged("checkpoints_verified", record, {}).verdict == "pass"


# --- bounds -----------------------------------------------------------------------------------------

REFUSED = [
    ("planning", "max_share: 0.9", "max_share: 99", "settings of memory_fits, key max_share"),
    ("planning", "max_share: 0.9", "max_share: 0", "less than or equal|greater than 0"),
    ("planning", "min_steps: 2", "min_steps: 0", "settings of probe_identical, key min_steps"),
    ("planning", "min_steps: 2", "min_stepps: 2", "did you mean 'min_steps'"),
    ("planning", "probe_steps: 8", "probe_steps: 0", r"phases/01_planning/workflow\.md:7, key settings\.probe_steps: .*found 0"),
    ("planning", "probe_steps: 8", "probe_stepps: 8", "workflow.md:7, key settings.probe_stepps: .*did you mean 'probe_steps'"),
    ("planning", "probe_steps: 8", "more: 8", "key settings.probe_steps: Field required"),
    ("planning", "loader_wait: 0.1", "loader_wait: 1", "workflow.md:9, key settings.loader_wait"),
    ("planning", "leak_rows: 0.05", "leak_rows: 5", "key settings.leak_rows"),
    ("planning", "class_imbalance: 10", "class_imbalance: 0", "key settings.class_imbalance"),
    ("baseline", "items:", "settings: {steps: 8}\nitems:", "workflow.md:6, key settings.steps"),
    ("baseline", "min_percent: 60", "min_percent: -1", "settings of gpu_utilization, key min_percent"),
    ("baseline", "demand: both", "demand: none", "settings of checkpoints_verified, key demand"),
    ("diagnostics", "min_evaluations: 3", "min_evaluations: 0", "settings of curves_analysed, key min_evaluations"),
    ("optimization", "level: 0.05", "level: 1.0", "settings of improvement_validated, key level"),
    ("optimization", "seeds: 5", "seeds: 0", "settings of improvement_validated, key seeds"),
    ("finalization", "tolerance: 1.0e-4", "tolerance: 1.0e+9", "settings of exports_agree, key tolerance"),
    ("finalization", "interval_level: 0.95", "interval_level: 95", "workflow.md:7, key settings.interval_level"),
    ("finalization", "max_openings: 1", "max_openings: 0", "settings of test_opened_once, key max_openings"),
]


def write_page(root: Path, phase: str, old: str, new: str) -> None:
    path = root / page_path(phase)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (handbook.shipped_folder() / page_path(phase)).read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(("phase", "old", "new", "told"), REFUSED)
def test_a_setting_that_means_nothing_is_refused_by_name(phase, old, new, told, tmp_path):
    write_page(tmp_path, phase, old, new)
    with pytest.raises(InputError, match=told):
        phase_page(phase, tmp_path)


@pytest.mark.slow
def test_a_weaker_number_that_is_legal_is_told_by_the_gate(digits):
    path = page_path("baseline")
    write_page(digits.root, "baseline", "min_percent: 60", "min_percent: 50")
    record = recorded(digits, "baseline")
    record["handbook"][path] = policy_digest(path, digits.root)
    page = phase_page("baseline", digits.root)
    own = {
        "policy": page.model_dump(),
        "policy_overrides": [path],
        "policy_changes": policy_changes(page, shipped_page(page.phase)),
    }
    write(digits, "baseline", seal({**record, **own}))
    baseline = check_gates(digits)[1]
    assert baseline.holds
    assert baseline.notes[0] == "judged by this project's own numbers: gpu_utilization.min_percent: 60 -> 50"


NUMBERS = [(item, name, field) for item, model in SETTINGS.items() for name, field in model.model_fields.items()]


@pytest.mark.parametrize(("item", "name", "field"), [row for row in NUMBERS if row[2].annotation in (int, float, bool)])
def test_of_every_number_of_an_item_it_is_known_which_way_asks_for_less(item, name, field):
    assert {is_weaker("planning", f"{item}.{name}", *pair) for pair in ((0, 1), (1, 0))} == {True, False}, field


def test_of_what_is_no_number_it_is_not_said_whether_it_asks_for_less():
    assert is_weaker("baseline", "checkpoints_verified.demand", "both", "configured") is None
    assert is_weaker("planning", "settings.no_such", 1, 2) is None
    assert is_weaker("planning", "settings.probe_steps", 8, 2)
    assert is_weaker("baseline", "within_time_budget.waivable", False, True)


# --- holes, generated from the models ---------------------------------------------------------------


def removals(model: BaseModel, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every required field of a model and of the models in it, of each list the first."""
    found: list[tuple[Any, ...]] = []
    for name, field in type(model).model_fields.items():
        place = (*path, field.alias or name)
        value = getattr(model, name)
        found += [place] if field.is_required() else []
        if isinstance(value, list) and value and isinstance(value[0], BaseModel):
            found += removals(value[0], (*place, 0))
        if isinstance(value, BaseModel):
            found += removals(value, place)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_every_field_that_is_taken_out_of_a_record_is_named(phase):
    paths = removals(typed(kept(phase)))
    assert len(paths) > 20
    for path in paths:
        record = kept(phase)
        place = record
        for part in path[:-1]:
            place = place[part]
        del place[path[-1]]
        told = [hole for hole in parsed(record, phase)[1] if hole.startswith(".".join(map(str, path)))]
        assert told or path[-1] in ("rule", "skipped"), path


@pytest.mark.parametrize(
    ("minutes", "told"), [(120.0, "--set epochs=30, which fit"), (59.0, None), (60.0 * 61, "raise budget.minutes in")]
)
def test_a_run_that_is_too_long_is_told_the_epochs_that_fit(minutes, told):
    record = kept("planning")
    estimate(minutes=minutes, budget_minutes=60.0)(record["evidence"])
    record["evidence"]["config"] |= {"epochs": 60, "budget": {"minutes": 60.0}}
    found = judged("time_within_budget", record, {})
    assert found.verdict == ("pass" if told is None else "fail")
    assert told is None or told in str(found.hint)
