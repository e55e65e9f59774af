from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest

from mltrainer.diagnostics.rules import RULES, acceptance_rows, assess, diagnose, fitting, recommend, suggested_changes
from mltrainer.diagnostics.signals import Run, evaluations_of
from mltrainer.errors import InputError
from mltrainer.records.common import Acceptance
from mltrainer.reports.phase_names import names

CONFIG = {
    "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01},
    "schedule": {"name": "cosine", "warmup_epochs": 1},
    "model": {"name": "mlp", "hidden": [256, 256], "dropout": 0.0},
    "clip": None,
    "early_stopping": {"patience": 3, "min_delta": 0.0},
    "batch_size": 64,
    "loader": {"workers": 0},
    "precision": "fp32",
}


def advice(run, acceptance=()):
    rows = diagnose(Run.of(run), None)
    return recommend(rows, acceptance, assess(rows, Run.of(run)))


def changes(run, name, config=CONFIG):
    rows = [row for row in diagnose(Run.of(run), None) if row.id == name]
    return {key: value for change in suggested_changes(rows, config) for key, value in change.set.items()}


def met(value):
    return [Acceptance(metric="accuracy", criterion=">= 0.9", value=value, met=value >= 0.9, split="validation")]


# --- rows ---


def test_every_rule_gives_a_row_with_its_page(healthy):
    rows = diagnose(Run.of(healthy), None)
    assert [row.id for row in rows] == list(RULES)
    assert {row.state for row in rows} == {"clear", "not_applicable"}  # not all that the rules read was observed
    assert all(row.reason and row.causes and row.suggestions and row.title for row in rows)


def test_rows_are_plain_json_whatever_was_recorded(broken):
    broken["history"][0]["grad_norm"]["max"] = "nan"
    rows = diagnose(Run.of(broken), None)
    written = [row.model_dump() for row in rows]
    assert json.loads(json.dumps(written, allow_nan=False)) == written


def test_a_record_is_not_altered_and_gives_the_same_rows_again(unlearned):
    before = copy.deepcopy(unlearned)
    assert diagnose(Run.of(unlearned), None) == diagnose(Run.of(unlearned), None)
    assert unlearned == before


def test_an_empty_record_is_judged_without_error():
    assert {row.state for row in diagnose(Run.of({}), None)} == {"not_applicable"}


def page(project, text):
    (project / "diagnostics").mkdir()
    (project / "diagnostics" / "overfitting.md").write_text(text)
    return project


OWN = """---
title: Ours
diagnostic: overfitting
severity: warning
thresholds: {gap: 0.4, skill: 0.3, standard_errors: 2, rise: 1.1, wide: 0.5}
sources: [ours]
causes: [one]
suggestions: [{why: none}]
---
"""


def test_a_projects_own_page_sets_the_threshold(tmp_path, healthy):
    for one in healthy["history"]:
        one["train"]["accuracy"], one["validation"]["accuracy"] = 1.0, 0.7
    row = next(row for row in diagnose(Run.of(healthy), page(tmp_path, OWN)) if row.id == "overfitting")
    assert (row.title, row.state, row.thresholds["gap"]) == ("Ours", "clear", 0.4)
    assert "overfitting" in [row.id for row in diagnose(Run.of(healthy), None) if row.state == "fired"]


@pytest.mark.parametrize(("old", "new"), [("gap: 0.4, ", ""), ("gap:", "gab:"), ("rise: 1.1", "rise: 1.1, more: 1")])
def test_a_page_with_other_thresholds_is_refused_with_the_names(tmp_path, healthy, old, new):
    with pytest.raises(InputError, match="expected the thresholds gap, rise, skill, standard_errors, wide"):
        diagnose(Run.of(healthy), page(tmp_path, OWN.replace(old, new)))


def test_a_page_of_another_diagnostic_is_refused(tmp_path, healthy):
    with pytest.raises(InputError, match="expected overfitting, found nan_loss"):
        diagnose(Run.of(healthy), page(tmp_path, OWN.replace("diagnostic: overfitting", "diagnostic: nan_loss")))


# --- assessment ---


def judged(run):
    return assess(diagnose(Run.of(run), None), Run.of(run))


def test_a_healthy_run_has_a_good_fit_and_healthy_gradients(healthy):
    found = judged(healthy)
    assert (found.fit, found.gradients) == ("good", "healthy")
    assert "20 evaluations: the validation loss began at 0.7" in found.curves
    assert evaluations_of(1) == "1 evaluation"


def test_a_run_at_chance_underfits(unlearned):
    assert judged(unlearned).fit == "underfitting"


def test_a_gap_is_overfitting_with_its_reason(healthy):
    for one in healthy["history"]:
        one["train"]["accuracy"], one["validation"]["accuracy"] = 1.0, 0.7
    found = judged(healthy)
    assert found.fit == "overfitting"
    assert "30 points" in found.fit_reason


@pytest.mark.parametrize(("best", "end", "fit"), [(0.6, 0.72, "good"), (0.72, 0.72, "good"), (0.68, 0.68, "underfitting")])
def test_the_fit_and_the_rule_on_underfitting_are_one_fact(unlearned, best, end, fit):
    for nr, one in enumerate(unlearned["history"]):  # the best evaluation is the third
        one["train"]["accuracy"] = best if nr < 3 else end
        one["validation"]["accuracy"] = 0.68 if nr == 2 else 0.6
    (rule,) = [row for row in diagnose(Run.of(unlearned), None) if row.id == "underfitting"]
    found = judged(unlearned)
    assert found.fit == fit
    assert rule.state == ("fired" if fit == "underfitting" else "clear")
    assert found.fit_reason.startswith(rule.reason.removesuffix("."))


def test_of_overfitting_and_underfitting_one_alone_is_said_of_a_run(unlearned):
    for one in unlearned["history"]:
        one["train"]["accuracy"], one["validation"]["accuracy"] = 0.675, 0.51
    rows = {row.id: row for row in diagnose(Run.of(unlearned), None)}
    assert (rows["overfitting"].state, rows["underfitting"].state) == ("fired", "not_applicable")
    assert rows["underfitting"].reason.startswith("Explained by overfitting. ")
    assert judged(unlearned).fit == "overfitting"


@pytest.mark.parametrize(("train", "fit"), [(0.68, "underfitting"), (0.3, "overfitting")])
def test_losses_that_part_are_no_overfitting_of_a_run_that_learned_neither_split(train, fit):
    losses = [(0.69, 0.69), *[(train, 0.9)] * 5]
    rows = [{"epoch": n, "train": {"loss": a}, "validation": {"loss": b}} for n, (a, b) in enumerate(losses, 1)]
    references = {"rows": [{"name": "constant", "title": "", "verdict": "level", "metrics": {"loss": 0.69}}]}
    record = {"state": "finished", "metric": {"name": "loss", "mode": "min"}, "first_loss": 0.7, "history": rows}
    run = Run.of(record, references)
    found = {row.id: row for row in diagnose(run, None) if row.state != "not_applicable"}
    assert [name for name in ("overfitting", "underfitting") if name in found and found[name].state == "fired"] == [fit]
    assert assess(diagnose(run, None), run).fit == fit
    if fit == "underfitting":
        assert "Not judged: loss on validation is 0.69, and a constant answer reaches 0.69" in found["overfitting"].reason
        assert "and the training skill of 0.0286 is not above 0.3." in found["overfitting"].reason


@pytest.mark.parametrize(("norms", "expected"), [([1e-9, 0.1, 0.2], "vanishing"), ([0.5, 0.5, 0.5], "healthy")])
def test_gradients_are_judged_by_their_rules(unlearned, norms, expected):
    for one in unlearned["history"]:
        one["layer_norms"] = norms
    assert judged(unlearned).gradients == expected


def test_a_run_without_record_is_unknown():
    found = judged({})
    assert (found.fit, found.gradients) == ("unknown", "unknown")


# --- recommendation ---


def test_a_met_criterion_deploys(healthy):
    assert advice(healthy, met(0.95)) == ("deploy", ["On validation accuracy is 0.95, as required (>= 0.9)."])


def test_a_missed_criterion_optimizes(healthy):
    assert advice(healthy, met(0.8)) == ("optimize", ["On validation accuracy is 0.8, not as required (>= 0.9)."])


def test_without_a_criterion_nothing_is_deployed(healthy):
    recommendation, reasons = advice(healthy)
    assert recommendation == "optimize"
    assert "No acceptance criterion" in reasons[0]


def test_a_nan_loss_is_debugged_though_the_criterion_is_met(broken):
    recommendation, reasons = advice(broken, met(0.95))
    assert recommendation == "debug"
    assert reasons[0].startswith("NaN loss: ")


def test_an_interrupted_run_is_debugged(healthy):
    healthy["state"] = "interrupted"
    assert advice(healthy, met(0.95))[0] == "debug"


def test_one_spike_in_a_run_that_learned_is_told_and_not_debugged(healthy):
    healthy["history"][8]["grad_norm"]["max"] = 500
    recommendation, reasons = advice(healthy, met(0.95))
    assert recommendation == "deploy"
    assert "Exploding gradients: The largest" in reasons[-1]


def test_an_explosion_in_a_run_that_did_not_learn_is_debugged(unlearned):
    unlearned["history"][8]["grad_norm"]["max"] = 500
    assert advice(unlearned, met(0.95))[0] == "debug"


def test_a_metric_that_is_not_measured_or_nan_is_not_met():
    rows = acceptance_rows({"accuracy": ">= 0.9", "f1_macro": ">= 0.9", "loss": "<= 1"}, {"accuracy": 0.95, "loss": "nan"})
    assert [(row.value, row.met) for row in rows] == [(0.95, True), (None, False), ("nan", False)]


def test_what_planning_warned_of_stands_among_the_reasons_of_each_recommendation(healthy, broken):
    what = "net predicts the target almost by itself"
    for run, expected in ((healthy, "deploy"), (broken, "debug")):
        rows = diagnose(Run.of(run), None)
        found, reasons = recommend(rows, met(0.95), assess(rows, Run.of(run)), (), [what])
        assert (found, reasons[-1]) == (
            expected,
            f"Planning warned: {what}.",
        )


# --- changes ---


def test_a_tenth_of_the_current_rate_is_suggested_as_a_number(broken):
    assert changes(broken, "nan_loss") == {"optimizer.lr": 1e-4, "clip.norm": 1.0}


def test_a_change_never_takes_back_a_stronger_setting(broken):
    assert "clip.norm" not in changes(broken, "nan_loss", {**CONFIG, "clip": {"norm": 0.5}})


def test_the_rate_of_a_tasks_own_optimizer_is_left_to_it(broken, unlearned):
    own = {**CONFIG, "optimizer": {"name": "own", "lr": 1.0}, "schedule": {"name": "own"}}
    for run in (broken, unlearned):
        rows = diagnose(Run.of(run), None)
        assert "optimizer.lr" in {key for one in suggested_changes(rows, CONFIG) for key in one.set}
        assert not {key for one in suggested_changes(rows, own) for key in one.set} & {"optimizer.lr", "schedule.warmup_epochs"}


def test_a_warmup_in_steps_is_not_exchanged_for_one_in_epochs(broken):
    both = {"name": "cosine", "warmup_epochs": 0, "warmup_steps": 0}
    assert changes(broken, "nan_loss", {**CONFIG, "schedule": both})["schedule.warmup_epochs"] == 1
    assert "schedule.warmup_epochs" not in changes(broken, "nan_loss", {**CONFIG, "schedule": {**both, "warmup_steps": 500}})


def test_keys_that_the_config_does_not_have_are_left_out(healthy):
    for one in healthy["history"]:
        one["train"]["accuracy"], one["validation"]["accuracy"] = 1.0, 0.7
    full = {"model.dropout": 0.3, "optimizer.weight_decay": 0.1, "model.hidden": [128, 128]}
    assert changes(healthy, "overfitting") == full
    own_task = {**CONFIG, "model": None}
    assert changes(healthy, "overfitting", own_task) == {"optimizer.weight_decay": 0.1}


def test_suggestions_that_fit_a_config_keep_the_pages_words_and_advice_and_drop_what_it_has_no_room_for(broken):
    own_task = {**CONFIG, "model": None, "clip": {"adaptive": 0.1}}
    rows = {row.id: [one.set for one in row.suggestions] for row in fitting(diagnose(Run.of(broken), None), own_task)}
    assert rows["nan_loss"] == [{"optimizer.lr": "x0.1"}, {}]
    assert {key for one in rows["vanishing_gradients"] for key in one} == set()


def test_the_report_of_a_diagnosis_sets_no_key_that_the_config_does_not_have(broken):
    rows = fitting(diagnose(Run.of(broken), None), {**CONFIG, "precision": "bf16"})
    evidence = {"recommendation": "debug", "diagnostics": [row.model_dump() for row in rows]}
    command = names({"phase": "diagnostics", "evidence": evidence, "figures": []}, [])["next_command"]
    assert command == "mltrainer phase run planning --set clip.norm=1.0 --set precision=fp32"


def test_a_diagnostic_that_did_not_fire_suggests_nothing(healthy):
    assert suggested_changes(diagnose(Run.of(healthy), None), CONFIG) == []


def test_whole_numbers_stay_whole(healthy):
    healthy["gpu"] = {"name": "A", "utilization": 20, "samples": 200}
    assert changes(healthy, "resource_inefficiency") == {"loader.workers": "auto", "batch_size": 128}


@pytest.mark.slow
def test_the_room_imports_no_numerics_library():
    code = "import sys, mltrainer.diagnostics.rules; print([m for m in ('torch', 'numpy', 'sklearn') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# --- beside plain models ---


def compared(run, **verdicts):
    """Return a run that was compared with plain models, by the verdict on each."""
    rows = [{"name": name, "title": name, "verdict": verdict} for name, verdict in verdicts.items()]
    return Run.of(run, {"rows": rows})


def test_a_run_that_no_plain_model_beats_is_neither_underfitting_nor_stalled(unlearned):
    run = compared(unlearned, constant="ahead", boosting="level")
    rows = [*diagnose(Run.of(unlearned), None), *diagnose(run, None)]
    assert [row.state for row in rows if row.id == "convergence_stall"] == ["fired", "clear"]
    fit = assess(diagnose(run, None), run)
    assert fit.fit == "good"
    assert "no plain model does better" in fit.fit_reason


@pytest.mark.parametrize("verdicts", [{"constant": "level", "boosting": "level"}, {"constant": "ahead"}])
def test_as_good_as_a_constant_answer_or_beside_nothing_else_is_still_underfitting(unlearned, verdicts):
    run = compared(unlearned, **verdicts)
    assert assess(diagnose(run, None), run).fit == "underfitting"


def test_of_rows_that_nothing_tells_apart_no_larger_model_is_proposed(unlearned):
    told = {}
    for boosting in ("level", "behind"):  # the run beside boosting
        rows = diagnose(compared(unlearned, constant="level", boosting=boosting), None)
        fired = [row for row in rows if row.id in ("underfitting", "convergence_stall") and row.state == "fired"]
        told[boosting] = [
            ("can predict the target at all" in row.reason, bool(suggested_changes([row], CONFIG))) for row in fired
        ]
    assert told == {"level": [(True, False)] * 2, "behind": [(False, True)] * 2}


def test_a_good_fit_that_a_plain_model_beats_is_told(healthy):
    run = compared(healthy, constant="ahead", linear="level", boosting="behind")
    rows = diagnose(run, None)
    assessment = assess(rows, run)
    assert assessment.fit == "good"
    assert "behind boosting" in assessment.fit_reason
    assert "The run is behind boosting on the same validation rows." in recommend(rows, met(0.95), assessment, ["boosting"])[1]
