"""What comes next: the advice changes with what happened, names a human decision, or says that all is done; it never repeats."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.configs.pages import phase_page
from mltrainer.gates.gate import Gate, GateItem, evaluate
from mltrainer.gates.machine import PhaseState, advice
from mltrainer.records.reading import Record
from mltrainer.workspace import PHASES
from tests.gates.evidence import kept, typed
from tests.handbook.reading import unknown_part

CRITERION = {"accuracy": ">= 0.9"}
RUN = {"id": "a1", "metrics": {"accuracy": 0.95}, "metric": {"name": "accuracy", "mode": "max"}, "data_sha256": "d"}
ACCEPTED = [{"metric": "accuracy", "criterion": ">= 0.9", "value": 0.95, "met": True}]


def gate(phase: str, evidence: dict[str, Any], items: tuple[GateItem, ...] = ()) -> Gate:
    content = kept(phase, **evidence)
    return Gate(phase, Record(content, "0", typed=typed(content)), items)


def passed(phase: str, **evidence: Any) -> PhaseState:
    return PhaseState(phase, "passed", (), gate(phase, evidence))


def failed(phase: str, item: str, **evidence: Any) -> PhaseState:
    """Return the state of a phase in which one item fails, as its check and its page tell it."""
    rows = tuple(row for row in evaluate(typed(kept(phase, **evidence)), phase_page(phase, None), []) if row.id == item)
    assert [row.verdict for row in rows] == ["fail"]
    assert "missing" not in rows[0].evidence, rows
    return PhaseState(phase, "failed", (), gate(phase, evidence, rows))


def states(*known: PhaseState) -> list[PhaseState]:
    """Return all phases' states: those given, the first of the others ready, the rest locked."""
    found = [*known]
    for phase in PHASES[len(known) :]:
        found.append(PhaseState(phase, "ready" if len(found) == len(known) else "locked", (), Gate(phase, None)))
    return found


def planned(task: dict[str, Any]) -> PhaseState:
    return passed("planning", config={"task": task})


def diagnosed(acceptance: list[dict[str, Any]], recommendation: str = "optimize") -> PhaseState:
    return passed("diagnostics", acceptance=acceptance, recommendation=recommendation)


def final(way_back: dict[str, Any], accuracy: float, test: dict[str, Any]) -> PhaseState:
    return failed(
        "finalization",
        "acceptance_met",
        config={"acceptance": CRITERION},
        run={**RUN, "metrics": {"accuracy": accuracy}},
        delivered_sha256="w",
        test={"openings": [], "sealed": None, "intervals": NO_BOUNDS, **test},
        data={"splits": {"test": {"samples": 20}}},
        way_back={"search": None, **way_back},
    )


NO_BOUNDS = {"level": 0.95, "resamples": 1000, "bounds": {}, "reason": "of a test"}
SEALED = {"samples": 0, "metrics": {}, "sealed": "accuracy on validation is 0.5"}
TUNED = {"set": {}, "trials": 20}
BEFORE_FINAL = [passed("planning"), passed("baseline", run=RUN), diagnosed(ACCEPTED), passed("optimization")]


def test_each_phase_follows_the_one_before():
    assert advice(states(*map(passed, PHASES))) is None
    for number in range(5):
        known = [diagnosed(ACCEPTED) if phase == "diagnostics" else passed(phase) for phase in PHASES[:number]]
        found = advice(states(*known))
        assert (found.command, found.asks) == (f"mltrainer phase run {PHASES[number]}", False)


def test_without_a_criterion_a_person_is_asked_before_a_search_begins():
    found = advice(states(planned({"use": "mlp"}), passed("baseline", run=RUN), diagnosed([])))
    assert (found.phase, found.command, found.asks) == ("optimization", None, True)
    assert 'acceptance: {accuracy: ">= ..."}' in found.why
    assert "the baseline reached accuracy 0.95 on validation" in found.why
    assert found.why.endswith("mltrainer phase run optimization")


def test_a_search_that_has_nothing_to_vary_is_not_proposed():
    def why(**task: Any) -> str:
        return advice(states(planned({"script": "python train.py", **task}), passed("baseline", run=RUN), diagnosed([]))).why

    assert why().endswith("then mltrainer run")
    assert why(arguments={"lr": 0.1}).endswith("mltrainer phase run optimization")


def test_a_baseline_that_may_be_deployed_is_not_sent_to_a_search():
    found = advice(states(passed("planning"), passed("baseline", run=RUN), diagnosed(ACCEPTED, "deploy")))
    assert (found.command, found.asks) == ("mltrainer run", False)
    assert found.explained == "every acceptance criterion is met: optimization is skipped on the record, and finalization follows"


def test_a_final_training_that_loses_what_the_baseline_had_is_taken_back_and_not_searched_again():
    found = advice(states(*BEFORE_FINAL, final({"set": {"epochs": 20, "clip": None}, "trials": None}, 0.5, SEALED)))
    assert found.command == "mltrainer phase run finalization --set epochs=20 --set clip=null"
    assert "optimization" not in found.why


def test_a_tuned_model_that_misses_on_validation_is_searched_for_longer_each_time():
    commands = []
    for trials in (20, 40):
        found = advice(states(*BEFORE_FINAL, final({"set": {}, "trials": trials}, 0.5, SEALED)))
        commands.append(found.command)
    assert commands == [f"mltrainer phase run optimization --set trials={n}" for n in (40, 80)]


def test_a_tuned_model_that_misses_on_validation_is_told_what_the_search_s_report_advises():
    advised = "search another space (configs/tuning_template.yaml), then mltrainer phase run optimization"
    found = advice(states(*BEFORE_FINAL, final({"set": {}, "trials": 20, "search": advised}, 0.5, SEALED)))
    assert (found.command, found.asks) == (None, True)
    assert advised in found.why


def test_after_a_miss_on_the_test_split_no_search_is_advised_and_a_person_decides():
    seen = {"samples": 20, "metrics": {"accuracy": 0.8}}
    found = advice(states(*BEFORE_FINAL, final(TUNED, 0.95, seen)))
    assert (found.command, found.asks) == (None, True)
    assert found.why.startswith("bring new data for a test split")
    assert 'mltrainer gate waive finalization acceptance_met --reason "..."' in found.why
    assert "phase run optimization" not in found.why


NAN_RUN = {
    **RUN,
    "state": "failed",
    "stop_reason": "nonfinite",
    "steps": 3,
    "epochs": 1,
    "history": [],
    "chain": {"entries": 3},
    "nonfinite": {"step": 3, "epoch": 1, "what": "loss", "samples": []},
}
NAN = {
    **kept("diagnostics")["evidence"]["diagnostics"][0],
    "id": "nan_loss",
    "state": "fired",
    "reason": "The loss was not finite at step 3.",
    "page": "diagnostics/nan_loss.md",
}


def nan_baseline(lr: float) -> PhaseState:
    changes = [{"why": "A tenth of the learning rate", "set": {"optimizer.lr": lr}, "page": NAN["page"]}]
    return failed("baseline", "finished", run=NAN_RUN, diagnostics=[NAN], changes=changes)


def test_a_baseline_that_failed_leads_back_to_planning_with_the_change_to_try():
    found = advice(states(passed("planning"), nan_baseline(0.01)))
    assert (found.phase, found.asks) == ("planning", True)
    assert found.command == "mltrainer phase run planning --set optimizer.lr=0.01"
    (item,) = nan_baseline(0.01).gate.failing
    assert item.evidence["nan_loss"] == "The loss was not finite at step 3. (mltrainer guide diagnostics/nan_loss)"


def test_a_line_that_made_the_first_number_that_is_not_finite_is_mended_first():
    shown = {"shape": [16], "dtype": "float32", "lowest": 0.0, "largest": 1.0}
    located = {**shown, "holds": "nan", "kind": "forward", "replayed_from": 2, "operation": "div", "line": "own.py:7"}
    located["inputs"] = [{**shown, "holds": None}]
    run = {**NAN_RUN, "nonfinite": {**NAN_RUN["nonfinite"], "located": located}}
    changes = [{"why": "A tenth of the learning rate", "set": {"optimizer.lr": 1e-4}, "page": NAN["page"]}]
    found = advice(states(passed("planning"), failed("baseline", "finished", run=run, diagnostics=[NAN], changes=changes)))
    assert (found.phase, found.command, found.asks) == ("planning", None, True)
    assert found.why == (
        "fix own.py:7, where div gave nan of finite numbers, then mltrainer run; "
        "or mltrainer phase run planning --set optimizer.lr=0.0001"
    )


def test_a_baseline_that_failed_without_a_finding_is_trained_again():
    state = failed("baseline", "finished", run=NAN_RUN, diagnostics=[], changes=[])
    found = advice(states(passed("planning"), state))
    assert (found.phase, found.asks) == ("baseline", False)


ASKING = {  # items of which only a person's decision or change can be the end, and the phase that each is of
    "recommendation_given": "diagnostics",
    "improvement_validated": "optimization",
    "final_run_diagnosed": "finalization",
    "test_opened_once": "finalization",
    "acceptance_met": "finalization",
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_person_is_asked_about_each_item_that_another_run_would_only_fail_again_and_about_no_other(phase):
    known = [diagnosed(ACCEPTED) if name == "diagnostics" else passed(name) for name in PHASES[: PHASES.index(phase)]]
    for item in phase_page(phase, None).items:
        row = GateItem(item.id, item.statement, "fail", {}, f"mltrainer phase run {phase}")
        found = advice(states(*known, PhaseState(phase, "failed", (), gate(phase, {}, (row,)))))
        assert (item.id, found.asks) == (item.id, ASKING.get(item.id) == phase)


@pytest.mark.slow
def test_a_file_that_planning_did_not_bind_leads_back_to_planning_unasked():
    found = advice(states(passed("planning"), failed("baseline", "inputs_planned", unplanned=["late.txt"])))
    assert (found.phase, found.command, found.asks) == ("planning", "mltrainer phase run planning", False)


def test_of_a_planning_that_stopped_the_reason_is_advised_and_not_what_it_did_not_come_to():
    evidence = kept("planning")["evidence"]
    kept_keys = ("config", "generated", "edited", "environment", "config_sha256", "template")
    secret = {"scanned": ["mltrainer.yaml"], "found": [{"path": "mltrainer.yaml", "line": 3, "kind": "key"}]}
    stopped = {"stopped": "a secret", "secrets": secret, **{key: evidence[key] for key in kept_keys if key in evidence}}
    content = typed({**kept("planning"), "evidence": stopped})
    items = evaluate(content, phase_page("planning", None), [])
    found = advice(states(PhaseState("planning", "failed", (), Gate("planning", Record({}, "0", typed=content), tuple(items)))))
    assert found is not None
    assert next(item.id for item in items if item.verdict == "fail") != "no_secrets"
    assert (found.command, found.reason) == (None, "no_secrets of planning does not hold")
    assert found.why.startswith("remove the secret")


def test_an_item_that_was_measured_is_advised_before_one_that_was_not():
    unnamed = GateItem("own", "", "fail", {"missing": "no check is named own"}, "name its function on the page")
    measured = GateItem("no_secrets", "", "fail", {"missing": []}, "remove the secret")
    found = advice(states(PhaseState("planning", "failed", (), gate("planning", {}, (unnamed, measured)))))
    assert (found.reason, found.why) == ("no_secrets of planning does not hold", "remove the secret")


@pytest.mark.parametrize(
    ("reason", "command", "why", "asks"),
    [
        ("a.yaml changed; next: mltrainer phase run baseline", "mltrainer phase run baseline", None, False),
        ("waivers.json is not readable; next: remove it, and waive again", None, "remove it, and waive again", True),
    ],
)
def test_a_phase_that_is_stale_again_however_often_it_runs_is_not_run_again(reason, command, why, asks):
    found = advice(states(passed("planning"), PhaseState("baseline", "stale", (reason,), gate("baseline", {}))))
    assert (found.command, found.why, found.asks) == (command, why or command, asks)


# --- walking on the advice ------------------------------------------------------------------------


def learning_rates() -> list[PhaseState]:
    """Return what following the advice of a failed baseline gives: each time a tenth of the rate, which fails again."""
    return [nan_baseline(10.0**-power) for power in (2, 3, 4)]


WALKS = {
    "a baseline that is never finite": [[passed("planning"), state] for state in learning_rates()],
    "a final model that misses on validation, then on the test split": [
        [*BEFORE_FINAL, final({"set": {"epochs": 20}, "trials": None}, 0.5, SEALED)],
        [*BEFORE_FINAL, final({"set": {}, "trials": None}, 0.95, {"samples": 20, "metrics": {"accuracy": 0.8}})],
    ],
    "a search that never finds enough": [[*BEFORE_FINAL, final({"set": {}, "trials": n}, 0.5, SEALED)] for n in (20, 40, 80)],
}


@pytest.mark.parametrize("walk", WALKS)
def test_a_command_that_is_advised_can_be_typed(walk):
    for found in (advice(states(*known)) for known in WALKS[walk]):
        assert found is None or found.command is None or unknown_part(found.command) is None


@pytest.mark.parametrize("walk", WALKS)
def test_advice_that_was_followed_is_not_given_again(walk):
    given = [found for known in WALKS[walk] if (found := advice(states(*known)))]
    commands = [found.command for found in given if found.command]
    assert len(set(commands)) == len(commands)
    assert all(found.command or found.asks for found in given)
