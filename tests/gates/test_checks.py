"""Every item of every gate: it passes on what was really measured, and fails when that is broken on purpose."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.pages import phase_page
from mltrainer.gates.check import CHECKS, Outcome
from mltrainer.gates.gate import Gate, GateItem, evaluate
from mltrainer.gates.machine import PhaseState, advice
from mltrainer.gates.statistics import sign_flip_p_value
from mltrainer.workspace import PHASES
from tests.gates.evidence import judged, kept, typed
from tests.handbook.reading import unknown_part
from tests.projects import recorded

Record = dict[str, Any]


def trial(nr: int, value: float) -> Record:
    return {**kept("optimization")["evidence"]["trials"][0], "nr": nr, "state": "finished", "value": value}


TUNED: Record = {
    "planned_trials": 2,
    "metric": {"name": "accuracy", "mode": "max"},
    "trials": [trial(1, 0.9), trial(2, 0.95)],
    "best": 2,
    "replay": {"identical": True},
    "promoted": "candidate",
    "comparison": {
        "seeds": [1, 2, 3, 4, 5],
        "baseline": [0.90, 0.91, 0.90, 0.92, 0.91],
        "candidate": [0.95, 0.95, 0.94, 0.95, 0.96],
    },
}


@pytest.fixture
def record(request: pytest.FixtureRequest, digits_once: Path) -> Record:
    found = recorded(digits_once, request.param)
    if request.param == "optimization":
        found["evidence"] = kept("optimization", **copy.deepcopy(TUNED))["evidence"]
    return found


def outcome(phase: str, item: str, record: Record) -> Outcome:
    page = phase_page(phase, None)
    settings = next(i.settings for i in page.items if i.id == item)
    return judged(item, record, settings)


def put(path: str, value: Any) -> Callable[[Record], None]:
    """Return a mutation that puts a value at a dotted path of the evidence (or, with `/`, of the record)."""

    def mutate(record: Record) -> None:
        place: Any = record if path.startswith("/") else record["evidence"]
        *parents, last = path.lstrip("/").split(".")
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[int(last) if isinstance(place, list) else last] = value

    return mutate


def unverify(role: str) -> Callable[[Record], None]:
    """Return a mutation after which the checkpoint of a role is not verified."""

    def mutate(record: Record) -> None:
        for row in record["evidence"]["run"]["checkpoints"]:
            row["verified"] = role not in row["roles"]

    return mutate


FUTURE = 10**9
NON_FINITE = {"step": 3, "epoch": 1, "what": "loss", "samples": []}
BREAKS: dict[str, dict[str, list[Callable[[Record], None]]]] = {
    "planning": {
        "config_valid": [put("config.epochs", "many"), put("config.epochs", 999), put("config.extra", 1)],
        "seeds_fixed": [
            put("probe.runs.1.draws.numpy", "0x1p-1"),
            put("probe.runs.1.init_sha256", "0"),
            put("probe.runs.0.determinism.PYTHONHASHSEED", "not set"),
        ],
        "determinism_on": [
            put("probe.runs.1.determinism.deterministic_algorithms", False),
            put("probe.runs.0.determinism.tf32", True),
            put("probe.runs.0.determinism.CUBLAS_WORKSPACE_CONFIG", "not set"),
        ],
        "environment_captured": [put("environment.distributions", []), put("environment.distributions.0.version", "")],
        "source_recorded": [put("/source.files", [{"path": "x.py", "sha256": "0", "size": 1}]), put("/source.sha256", "0")],
        "data_valid": [
            put("data.findings", [{"severity": "error", "what": "x"}]),
            put("data.splits.train.samples", 0),
            put("data.sha256", ""),
        ],
        "probe_identical": [
            put("probe.runs.1.weights_sha256", "0"),
            put("probe.runs.1.weights_tree_sha256", "0"),
            put("probe.runs.1.chain_head", "0"),
            put("probe.runs.0.steps", 1),
        ],
        "export_rehearsed": [
            put("rehearsal.fault", {"what": "x", "where": "my_task.py:3", "mend": "y"}),
            put("rehearsal.exports.0.agrees", False),
            put("rehearsal.exports.0.state", "failed"),
            put("rehearsal.exports", []),
        ],
        "memory_fits": [put("estimate.peak_mb", FUTURE)],
        "time_within_budget": [put("estimate.minutes", FUTURE)],
        "no_secrets": [put("secrets.found", [{"path": "a", "line": 1, "kind": "key"}]), put("secrets.scanned", [])],
    },
    "baseline": {
        "finished": [put("run.state", "interrupted"), put("run.history", []), put("run.chain.entries", 3), put("run.steps", 1)],
        "losses_finite": [put("run.history.0.train_loss", "nan"), put("run.nonfinite", NON_FINITE), put("run.history", [])],
        "checkpoints_verified": [
            *(unverify("best"), unverify("last"), put("run.checkpoints", []), put("run.best.step", 1)),
        ],
        "inputs_planned": [put("unplanned", ["late.txt"])],
        "within_time_budget": [put("run.wall_s", FUTURE)],
        "gpu_utilization": [put("run.gpu", {"name": "x", "utilization": 10, "samples": 5}), put("run.device", "cuda")],
    },
    "diagnostics": {
        "curves_analysed": [put("evaluations", 0), put("assessment.curves", "")],
        "fit_assessed": [put("assessment.fit", "unknown")],
        "gradients_checked": [put("assessment.gradients", "unknown")],
        "triggers_evaluated": [put("diagnostics.0.reason", ""), put("diagnostics", [])],
        "recommendation_given": [put("recommendation", "debug"), put("recommendation", "")],
    },
    "optimization": {
        "tuning_finished": [put("planned_trials", 3), put("trials", []), put("trials.0.nr", 2)],
        "best_config_identified": [put("best", 1), put("replay.identical", False), put("trials.0.value", 0.99)],
        "improvement_validated": [
            put("comparison.candidate", [0.90, 0.91, 0.90, 0.92, 0.91]),
            put("comparison.candidate.0", 0.5),
            put("comparison.candidate.0", "nan"),
            put("comparison.seeds", [1, 1, 1, 1, 1]),
        ],
    },
    "finalization": {
        "training_finished": [put("run.stop_reason", "signal")],
        "exports_agree": [
            put("exports.0.agrees", False),
            put("exports", []),
            put("exports.1.max_difference", "nan"),
            put("exports.1.relative_difference", 1.01e-4),  # the page tolerates 1e-4
        ],
        "documentation_written": [put("model_files", []), put("model_files.0.size", 0)],
        "reproduction_verified": [
            put("reproduction.identical", False),
            put("reproduction.weights_sha256", "0"),
            put("reproduction.weights_tree_sha256", "0"),
            put("reproduction.steps_compared", 1),
        ],
        "final_run_diagnosed": [
            put("diagnostics", []),
            put("diagnostics.0.reason", ""),
            put("diagnostics.0.state", "fired"),  # nan_loss, which is critical
            put("expected_diagnostics", ["a_rule_that_was_left_out"]),
            put("assessment.beats_constant", False),
        ],
        "test_opened_once": [
            put("test.openings", []),
            put("test.openings.0.weights_sha256", "0"),
            put("test.openings", [{"nr": nr, "run": str(nr), "purpose": "test"} for nr in (1, 2, 3)]),
            put("test.samples", 0),  # sealed, though validation meets the criterion
        ],
        "acceptance_met": [
            put("test.metrics.accuracy", 0.1),
            put("test.metrics.accuracy", "nan"),
            put("test.metrics", {}),
            put("test.samples", 0),
        ],
        "source_committed": [put("/source.dirty", True), put("/source.commit", None)],
    },
}
CASES = [
    (phase, phase, item, nr) for phase, items in BREAKS.items() for item, breaks in items.items() for nr in range(len(breaks))
]
ITEMS = [(phase, phase, item) for phase, items in BREAKS.items() for item in items]


@pytest.mark.parametrize("phase", PHASES)
def test_every_item_of_a_checklist_is_broken_here(phase):
    assert {item.id for item in phase_page(phase, None).items} == set(BREAKS[phase])


def test_every_check_belongs_to_an_item():
    assert set(CHECKS) == {item for items in BREAKS.values() for item in items}


@pytest.mark.parametrize(("record", "phase", "item"), ITEMS, indirect=["record"])
def test_an_item_holds_on_what_was_measured(record, phase, item):
    found = outcome(phase, item, record)
    assert found.verdict in ("pass", "not_applicable"), found
    assert found.evidence


@pytest.mark.parametrize(("record", "phase", "item", "number"), CASES, indirect=["record"])
def test_an_item_fails_when_its_evidence_is_broken(record, phase, item, number):
    BREAKS[phase][item][number](record)
    found = outcome(phase, item, record)
    assert found.verdict == "fail", found
    assert found.hint


LOOKING = ("guide", "diagnose", "reproduce", "gate", "status", "report")  # commands after which all is as it was


@pytest.mark.parametrize(("record", "phase", "item", "number"), CASES, indirect=["record"])
def test_what_is_advised_next_for_a_broken_item_can_be_typed_and_changes_something(record, phase, item, number):
    BREAKS[phase][item][number](record)
    found = outcome(phase, item, record)
    row = GateItem(item, item, "fail", found.evidence, found.hint)
    before = [PhaseState(name, "passed", (), Gate(name, None)) for name in PHASES[: PHASES.index(phase)]]
    said = advice([*before, PhaseState(phase, "failed", (), Gate(phase, None, (row,)))])
    assert said.command is None or unknown_part(said.command) is None
    assert said.command is None or said.command.split()[1] not in LOOKING
    named = re.search(r"mltrainer phase run (\w+)", said.why)
    assert said.asks or named is None or named[1] == said.phase


@pytest.mark.parametrize(("phase", "item"), [(phase, item) for phase, items in BREAKS.items() for item in items])
def test_an_item_fails_on_the_evidence_of_another_phase(phase, item):
    other = kept("diagnostics" if phase != "diagnostics" else "baseline")
    found = outcome(phase, item, other)
    assert (found.verdict, found.evidence) == ("fail", {"missing": "not measured here"})


def test_what_must_be_mended_in_the_data_is_said_whole(digits_once):
    record = recorded(digits_once, "planning")
    put("data.findings", [{"severity": "error", "what": "leakage: column 'a' equals the target"}])(record)
    assert "leakage: column 'a' equals the target" in outcome("planning", "data_valid", record).hint


def test_what_was_accepted_of_the_data_stands_with_its_reason_beside_the_verdict(digits_once):
    record = recorded(digits_once, "planning")
    assert "accepted" not in outcome("planning", "data_valid", record).evidence
    put("config.data.leak_accepted", {"smell": "it is smelled first"})(record)
    found = outcome("planning", "data_valid", record)
    assert (found.verdict, found.evidence["accepted"]) == ("pass", {"smell": "it is smelled first"})


def test_steps_that_were_skipped_are_told_beside_finite_losses_and_their_missing_norms_are_not_counted(digits_once):
    record = recorded(digits_once, "baseline")
    before = outcome("baseline", "losses_finite", record).evidence
    put("run.history.0.skipped", 1.0)(record)
    put("run.history.0.grad_norm.max", None)(record)
    found = outcome("baseline", "losses_finite", record)
    assert found.verdict == "pass"
    assert found.evidence == {**before, "values": before["values"] - 1, "evaluations_after_skipped_steps": 1}


PROGRAM = {"command": ["python"], "processes": 1, "evaluations": 1, "losses": 1, "outputs": [], "resumed": None}


@pytest.mark.parametrize(
    ("bound", "verdict", "unbound"), [("a" * 64, "pass", []), ("b" * 64, "fail", ["late.csv"]), (None, "fail", ["late.csv"])]
)
def test_a_file_that_a_program_opened_is_bound_by_its_record_with_the_digest_that_it_had(bound, verdict, unbound):
    row = {"path": "late.csv", "sha256": "a" * 64, "size": 1}
    record = kept("baseline", run={"program": {**PROGRAM, "read": [row]}})
    record["inputs"] += [{**row, "sha256": bound, "role": "data"}] if bound else []
    found = outcome("baseline", "inputs_planned", record)
    assert (found.verdict, found.evidence) == (verdict, {"opened": 1, "unbound": unbound})


def test_the_number_that_ended_a_run_is_counted_although_no_row_of_its_history_holds_it(digits_once):
    record = recorded(digits_once, "baseline")
    put("run.nonfinite", NON_FINITE)(record)
    found = outcome("baseline", "losses_finite", record)
    assert (found.verdict, found.evidence["not_finite"]) == ("fail", 1)


@pytest.mark.parametrize(("data", "models", "verdict"), [(None, 2, "fail"), ("the same", 2, "fail"), ("other data", 1, "pass")])
def test_an_opening_whose_data_nobody_noted_counts_for_every_split(digits_once, data, models, verdict):
    record = recorded(digits_once, "finalization")
    ours = record["evidence"]["run"]["data_sha256"] if data == "the same" else data
    record["evidence"]["test"]["openings"].append(
        {"nr": 2, "run": "another", "purpose": "test", "data_sha256": ours, "weights_sha256": "0" * 64}
    )
    found = outcome("finalization", "test_opened_once", record)
    assert (found.verdict, found.evidence["models"]) == (verdict, models)


def test_a_skip_is_recomputed_from_the_metrics(digits_once):
    record = recorded(digits_once, "optimization")
    record["evidence"]["acceptance"][0]["value"] = 0.5
    assert outcome("optimization", "tuning_finished", record).verdict == "fail"


def test_the_sign_flip_test_is_exact():
    assert sign_flip_p_value([1.0, 2.0, 3.0, 4.0, 5.0]) == 1 / 32
    assert sign_flip_p_value([1.0, -1.0]) == 0.75
    assert sign_flip_p_value([0.0, 0.0]) == 1.0


def test_the_sign_flip_test_counts_sums_that_are_equal_but_for_rounding():
    hits = [(311, 309), (323, 319), (311, 306), (344, 346), (306, 304), (346, 343)]
    assert sign_flip_p_value([float(new - old) for new, old in hits]) == 4 / 64
    assert sign_flip_p_value([new / 360 - old / 360 for new, old in hits]) == 4 / 64


# --- comparisons that are counted -----------------------------------------------------------------

EARLIER = [{"number": 1, "candidate_sha256": "a"}]


def improvement(wins: int = 5, **comparison: Any) -> Outcome:
    """Return the outcome of a candidate that wins on so many seeds, by the shipped policy."""
    record = kept("optimization", **copy.deepcopy(TUNED))
    sides = {"baseline": [0.9] * wins, "candidate": [0.9 + (nr + 1) / 100 for nr in range(wins)]}
    record["evidence"]["comparison"] |= {"seeds": list(range(wins)), **sides, "budget": {}, **comparison}
    return outcome("optimization", "improvement_validated", record)


def test_a_way_out_is_named_once():
    sides = {"baseline": [0.9] * 5, "candidate": [0.9] * 5}
    record = kept("optimization", **copy.deepcopy(TUNED))
    record["evidence"]["comparison"] |= sides
    items = {item.id: item for item in evaluate(typed(record), phase_page("optimization", None), [])}
    found = items["improvement_validated"]
    assert (found.verdict, (found.mend or "").count("mltrainer gate waive")) == ("fail", 1), found


def test_the_way_out_of_a_second_opening_is_named_once():
    record = kept("finalization")
    data = record["evidence"]["run"]["data_sha256"]
    for run in ("another", "a third"):
        row = {"nr": 2, "run": run, "purpose": "test", "data_sha256": data, "weights_sha256": run[-1] * 64}
        record["evidence"]["test"]["openings"].append(row)
    items = {item.id: item for item in evaluate(typed(record), phase_page("finalization", None), [])}
    assert items["test_opened_once"].mend == (
        "bring new data for a test split, then mltrainer run; "
        'or mltrainer gate waive finalization test_opened_once --reason "..."'
    )


@pytest.mark.parametrize(
    ("wins", "number", "earlier", "verdict"),
    [
        (5, None, [], "pass"),
        (5, 1, [], "pass"),
        (4, 1, [], "fail"),
        (6, 2, EARLIER, "fail"),  # 1/64 is above three sixteenths of 0.05
        (7, 2, EARLIER, "pass"),
        (7, 1, EARLIER, "fail"),  # two have been compared
        (7, 3, EARLIER, "fail"),
        (9, 3, EARLIER, "pass"),  # one of them is not known any more
    ],
)
def test_a_comparison_is_tested_at_the_level_that_its_number_leaves(wins, number, earlier, verdict):
    assert improvement(wins, number=number, earlier=earlier).verdict == verdict


def side(epochs: int | None, samples: list[int | None], steps: int = 10) -> Record:
    return {"epochs": epochs, "steps": [steps] * len(samples), "samples": samples}


@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict"),
    [
        (side(20, [100] * 5), side(20, [100] * 5), "pass"),
        (side(20, [100] * 5), side(19, [95] * 5), "pass"),
        (side(20, [100] * 5), side(21, [105] * 5), "fail"),
        (side(None, [None] * 5), side(None, [None] * 5), "pass"),  # a program's
        (side(20, [100] * 5), side(None, [None] * 5), "fail"),
    ],
)
def test_a_candidate_that_may_see_more_samples_than_the_baseline_is_not_better(baseline, candidate, verdict):
    assert improvement(budget={"baseline": baseline, "candidate": candidate}).verdict == verdict
    assert improvement(budget={"baseline": baseline}).verdict == "fail"


def test_the_budget_of_both_sides_stands_in_the_gates_evidence():
    found = improvement(number=1, budget={"baseline": side(20, [100] * 5), "candidate": side(20, [100] * 5, steps=40)})
    samples = {"epochs": 20, "samples": 500}
    assert found.evidence["budget"] == {"baseline": {**samples, "steps": 50}, "candidate": {**samples, "steps": 200}}
    assert (found.evidence["comparison"], found.evidence["level"]) == (1, 1 / 32)
    partly = improvement(budget={"baseline": side(20, [100, None]), "candidate": side(20, [1, 2])})
    assert [partly.evidence["budget"][name]["samples"] for name in ("baseline", "candidate")] == [None, 3]


def test_the_best_trial_is_the_best_of_those_that_meet_the_constraints():
    def found(best: int | None, **asked: Any) -> Outcome:
        trials = [
            {**trial(nr, value), "objectives": {"loss": loss}} for nr, (value, loss) in enumerate([(0.95, 0.9), (0.9, 0.3)], 1)
        ]
        several = {**TUNED, "planned_trials": 2, "trials": trials, "best": best, "constraints": {"loss": "<= 0.5"}, **asked}
        return outcome("optimization", "best_config_identified", kept("optimization", **several))

    def verdict(best: int, **asked: Any) -> str:
        return found(best, **asked).verdict

    assert [verdict(best) for best in (1, 2)] == ["fail", "pass"]
    assert [verdict(best, objectives={"loss": "min"}) for best in (1, 2)] == ["fail", "pass"]
    none = found(None, constraints={"loss": "<= 0.1"}, replay={"run": None, "identical": False})
    assert (none.verdict, str(none.hint).partition(",")[0]) == ("fail", "loosen the constraints that no trial meets")
    assert verdict(1, constraints={"loss": "<= 0.1"}) == "fail"


def test_the_trial_taken_by_several_metrics_is_taken_again_by_the_gate():
    def verdict(best: int, *points: tuple[float, float]) -> str:
        trials = [{**trial(nr, value), "objectives": {"loss": loss}} for nr, (value, loss) in enumerate(points, 1)]
        several = {**TUNED, "objectives": {"loss": "min"}, "planned_trials": len(trials), "trials": trials, "best": best}
        return outcome("optimization", "best_config_identified", kept("optimization", **several)).verdict

    # Equally close to the best of both: the better by the first metric.
    assert [verdict(best, (0.95, 0.9), (0.94, 0.3)) for best in (1, 2)] == ["pass", "fail"]
    assert [verdict(best, (0.95, 0.9), (0.94, 0.3), (0.948, 0.32)) for best in (1, 2, 3)] == ["fail", "fail", "pass"]
