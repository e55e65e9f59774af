"""The rules on curves, steps and memory: each on the run that it is for, and on what only looks like it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mltrainer.configs.pages import diagnostic_page
from mltrainer.diagnostics.rules import RULES, diagnose, suggested_changes
from mltrainer.diagnostics.signals import Finding, Run
from tests.diagnostics.firing import (
    CLASSES,
    FIRING,
    FLAT,
    UNLEARNED,
    answering,
    clipped,
    curve,
    holding,
    spiking,
    stepping,
    waiting,
)

LEARNED = [0.7 + 0.02 * n for n in range(12)]


def held_out(run: dict[str, Any], loss: float) -> dict[str, Any]:
    """Give every evaluation of a run another validation loss."""
    rows = [{**one, "validation": {**one["validation"], "loss": loss}} for one in run["history"]]
    return {**run, "history": rows}


SPIKE = {"step": 33, "loss": 40.0, "usual": 0.5, "largest_before": 0.8}
CREEPING, FALLING = ([0.7 - fall * n for n in range(12)] for fall in (0.0005, 0.02))
NUMBERS = {"classes": None, "top": None, "spread": 2.0}


def judge(name: str, run: dict[str, Any], references: dict[str, Any] | None = None) -> Finding:
    return RULES[name](Run.of(run, references), **diagnostic_page(name, None).thresholds)


@pytest.mark.parametrize("name", FIRING)
def test_a_rule_fires_on_its_fault_and_says_since_which_step(name):
    finding = judge(name, copy.deepcopy(FIRING[name]))
    assert finding.state == "fired"
    assert isinstance(finding.evidence["since_step"], int)


@pytest.mark.parametrize("name", sorted({*FIRING} - {"clip_too_small"}))
def test_a_rule_is_silent_on_a_run_that_learns(name, healthy):
    assert judge(name, stepping(answering(healthy, {"top": 0.5}, CLASSES), *[1e-3] * 6)).state == "clear"


@pytest.mark.parametrize("name", FIRING)
def test_a_rule_does_not_judge_what_was_not_recorded(name):
    assert judge(name, {"state": "finished"}).state == "not_applicable"


def test_a_critical_finding_asks_for_debugging():
    found = {row.id: row.severity for row in diagnose(Run.of(FIRING["divergence"]), None) if row.state == "fired"}
    assert found["divergence"] == "critical"


# --- what only looks like a fault ---


NEARLY = {
    "one class for nearly all targets": ("constant_predictions", answering(FLAT, {"top": 1.0}, {**CLASSES, "top": 0.98})),
    "outputs that spread as the targets": ("constant_predictions", answering(FLAT, {"spread": 1.5}, NUMBERS)),
    "a noisy loss at its first value": ("divergence", curve([0.71, 0.69] * 6, UNLEARNED)),
    "a high loss of a model that learned": ("divergence", curve([2.0] * 12, LEARNED)),
    "a high training loss of a few bad samples": ("divergence", held_out(curve([2.0] * 12, UNLEARNED), 0.4)),
    "large updates of a model that learned": ("learning_rate_high", stepping(curve([0.3] * 12, LEARNED), *[0.5] * 6)),
    "updates of weights near zero": ("learning_rate_high", stepping(FLAT, *[50.0] * 6, weights=0.001)),
    "small updates of a model that learned": ("learning_rate_low", stepping(curve([0.3] * 12, LEARNED), *[1e-6] * 6)),
    "small updates at the end of a schedule": ("learning_rate_low", stepping(FLAT, 1e-3, 1e-4, 1e-6)),
    "short steps of a loss that flattens": (
        "learning_rate_low",
        stepping(curve([0.69 + 0.01 * 0.5**n for n in range(12)], UNLEARNED), *[1e-4] * 6),
    ),
    "short steps of a loss that rises now and then": (
        "learning_rate_low",
        stepping(curve([0.7 - 0.0005 * n + 0.002 * (n % 3 == 2) for n in range(12)], UNLEARNED), *[1e-4] * 6),
    ),
    "short steps by which much is gone": ("learning_rate_low", stepping(curve(FALLING, UNLEARNED), *[1e-4] * 6)),
    "usual steps of a loss that creeps": ("learning_rate_low", stepping(curve(CREEPING, UNLEARNED), *[1e-3] * 6)),
    "a skill that rises to a bend": ("undertrained", curve(CREEPING, [0.8 - 0.3 * 0.5**n for n in range(12)])),
    "a skill that rises by its noise": ("undertrained", curve(CREEPING, [0.5 + 0.005 * n for n in range(12)])),
    "a skill that is full": ("undertrained", curve(CREEPING, [0.5 + 0.042 * n for n in range(12)])),
    "a few steps that are clipped": ("clip_too_small", clipped(FLAT, 0.01, share=0.2)),
    "steps that are clipped by little": ("clip_too_small", clipped(FLAT, 4.0)),
    "clipped steps of a model that learned": ("clip_too_small", clipped(curve([0.3] * 12, LEARNED), 0.01)),
    "a single fall back": ("loss_oscillation", curve([0.4] * 12, [*LEARNED[:6], 0.6, *LEARNED[7:]])),
    "a loss that stands out and is small": ("loss_spike", spiking(FLAT, {**SPIKE, "loss": 0.6, "largest_before": 0.1})),
    "memory that settles": (
        "memory_growth",
        answering(FLAT, {}, CLASSES, [100, 1000, 1100, 1180, 1181, 1182, 1183, 1184, 1185, 1186, 1187, 1188]),
    ),
    "memory that grew most before the first step was taken": (
        "memory_growth",
        answering(curve([0.7] * 6, UNLEARNED[:6]), {}, CLASSES, [500, 530, 545, 560, 575, 590]),
    ),
    "a loss hardly above the largest before it": ("loss_spike", spiking(FLAT, {**SPIKE, "largest_before": 39.0})),
    "memory that grows by little": ("memory_growth", answering(FLAT, {}, CLASSES, [100.0 + n for n in range(12)])),
    "a curve with its bend": ("undertrained", curve([0.7 / n for n in range(1, 13)], UNLEARNED)),
    "a loss that recovers late": ("undertrained", curve([0.5, 0.6, 0.9, 1.2] * 2 + [1.2, 0.9, 0.6, 0.4], UNLEARNED)),
    "a loss without a lower end": ("undertrained", curve([0.7 - n for n in range(12)], UNLEARNED)),
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_only_looks_like_a_fault_is_not_told(name):
    rule, run = NEARLY[name]
    assert judge(rule, run).state != "fired"


def test_only_the_falls_of_a_swinging_curve_are_counted():
    evidence = judge("loss_oscillation", curve([0.4] * 12, [0.8, 0.7] * 6)).evidence
    assert (evidence["swings"], evidence["share"]) == (4, 4 / 12)


def test_the_trend_of_a_steady_fall_is_the_same_in_its_last_third():
    evidence = judge("undertrained", curve([0.7 - 0.01 * n for n in range(1, 13)], UNLEARNED)).evidence
    assert evidence["late"] == pytest.approx(1 / 3)
    assert evidence["late_share"] == pytest.approx(1 / 3)
    assert (evidence["fall"], evidence["steady"]) == (pytest.approx(0.12 / 0.7), 1.0)


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([0.5, 0.4, 0.2, 0.9, 1.0, 1.1], "rose by 57.1 % of the first loss in all, and by 28.6 % of it in the last 33.3 % of"),
        ([0.4, 0.2, 0.3, 0.5, 0.6, 0.69], "fell by 1.43 % of the first loss in all, and rose by 27.1 % of it in the last"),
        ([0.6, 0.5, 0.4, 0.3, 0.2, 0.1], "fell by 85.7 % of the first loss in all, and by 28.6 % of it in the last 33.3 % of"),
    ],
    ids=["rose", "hardly fell", "fell"],
)
def test_how_a_loss_moved_is_told_in_words_that_are_right_whichever_way_it_went(losses, told):
    reason = judge("undertrained", curve(losses, [0.5] * 6)).reason
    assert told in reason
    assert "-" not in reason


def test_a_run_behind_no_plain_model_does_not_underfit():
    rows = [{"name": "constant", "title": "", "verdict": "ahead"}, {"name": "linear", "title": "", "verdict": "level"}]
    assert judge("underfitting", FLAT, {"rows": rows}).state == "clear"


def test_a_run_that_was_stopped_is_not_called_underfitting():
    assert judge("underfitting", {**FLAT, "state": "interrupted"}).state == "not_applicable"


def test_a_run_that_was_stopped_is_not_called_undertrained():
    assert judge("undertrained", {**FIRING["undertrained"], "state": "interrupted"}).state == "not_applicable"


# --- constant answers ---


def test_outputs_that_do_not_spread_are_constant_in_a_regression():
    assert judge("constant_predictions", answering(FLAT, {"top": 1.0, "spread": 0.001}, NUMBERS)).state == "fired"


def test_constant_answers_are_dated_by_the_first_observation_since_which_they_are():
    run = copy.deepcopy(FIRING["constant_predictions"])
    run["history"][4]["signals"]["validation"]["output"] = {"top": 0.6, "spread": 1.0}
    assert judge("constant_predictions", run).evidence["since_step"] == 60


def test_a_record_without_observations_is_judged_by_its_confusion_matrix():
    run = {**FLAT, "evaluation": {"confusion": [[100, 0], [100, 0]]}}
    assert judge("constant_predictions", run).state == "fired"


def early_stopped(matrix: list[list[int]], best: int = 4) -> dict[str, Any]:
    """Return a run that was observed at its first evaluation alone, where it answered alike."""
    run = answering(FLAT, {"top": 1.0}, CLASSES)
    for nr, each in enumerate(run["history"]):
        each["validation"]["accuracy"] = 0.6 if nr == best else 0.5
        if nr:
            each["signals"] = None
    return {**run, "evaluation": {"confusion": matrix}}


def test_an_early_look_at_the_answers_does_not_contradict_a_later_confusion_matrix():
    found = judge("constant_predictions", early_stopped([[60, 40], [40, 60]]))
    assert found.state == "clear"
    assert found.reason.startswith("At the best evaluation, in epoch 5, the most frequent answer was given to 50 % of")
    assert judge("constant_predictions", early_stopped([[100, 0], [100, 0]])).state == "fired"


def test_answers_that_were_seen_after_the_best_evaluation_are_told_with_their_epoch():
    run = answering({**FLAT, "evaluation": {"confusion": [[60, 40], [40, 60]]}}, {"top": 1.0}, CLASSES)
    found = judge("constant_predictions", run)
    assert found.state == "fired"
    assert found.reason.startswith("When its answers were seen last, in epoch 12, the most frequent answer was given to 100 % of")


# --- steps ---


@pytest.mark.parametrize(("update", "expected"), [(0.03, "fired"), (0.003, "clear")])
def test_a_leap_of_the_loss_by_fairly_large_updates_is_the_rates_fault(update, expected):
    assert judge("learning_rate_high", stepping(curve([5.0, *[0.7] * 11], UNLEARNED), *[update] * 6)).state == expected


@pytest.mark.parametrize("epochs", [2, 3, 5, 6, 20])
def test_a_straight_line_is_undertrained_whatever_its_length(epochs):
    losses = [0.7 - 0.1 * (n + 1) / epochs for n in range(epochs)]
    assert judge("undertrained", curve(losses, [0.5] * epochs)).state == "fired"


def test_the_rate_is_scaled_to_the_usual_update():
    assert proposed(stepping(FLAT, *[1e-6] * 6)) == {"optimizer.lr": 1.0}


def test_updates_lost_in_rounding_propose_the_templates_rate():
    assert proposed(stepping(FLAT, *[0.0] * 6)) == {"optimizer.lr": 1e-3}
    assert proposed(stepping(FLAT, *[1e-8] * 6)) == {"optimizer.lr": 1e-3}  # not the rate of 100 that would come of it


def proposed(run: dict[str, Any]) -> dict[str, Any]:
    rows = [row for row in diagnose(Run.of(run), None) if row.id == "learning_rate_low"]
    (change,) = suggested_changes(rows, {"optimizer": {"name": "sgd", "lr": 1e-9}})
    return change.set


def test_what_a_finding_would_have_to_measure_is_no_suggestion_before():
    rows = {row.id: row.suggestions for row in diagnose(Run.of(FIRING["divergence"]), None)}
    assert all("{" not in str(one.set.values()) for one in rows["learning_rate_low"])


def test_a_skill_that_still_rises_tells_of_a_short_run_before_the_loss_does():
    finding = judge("undertrained", curve(CREEPING, [0.5 + 0.03 * n for n in range(12)]))
    assert (finding.state, finding.evidence["fall"]) == ("fired", pytest.approx(0.0079, abs=1e-4))


def test_short_steps_by_which_the_loss_creeps_down_are_the_rates_fault():
    finding = judge("learning_rate_low", stepping(curve(CREEPING, UNLEARNED), *[1e-4] * 6))
    assert finding.state == "fired"
    assert "(at least 0.0002 expected); the loss crept down by 0.786 % of the first, no slower at the end" in finding.reason


@pytest.mark.parametrize("update", [1e-4, 1e-6])
def test_a_loss_that_a_late_leap_left_higher_is_not_said_to_creep_down(update):
    leapt = [0.7 - 0.0005 * n + 0.3 * (n >= 30) for n in range(40)]  # it fell in all intervals but one
    finding = judge("learning_rate_low", stepping(curve(leapt, [0.5] * 40), *[update] * 6))
    assert finding.state == ("fired" if update < 5e-5 else "clear")
    assert "crept" not in finding.reason
    assert "(at least 5e-05 expected)" in finding.reason


def test_gradients_that_vanish_are_not_the_rates_fault():
    run = stepping(FLAT, *[1e-6] * 6)
    for one in run["history"]:
        one["layer_norms"] = [1e-9, 1e-9, 1e-2]
    finding = judge("learning_rate_low", run)
    assert finding.state == "clear"
    assert finding.reason.endswith("of the first loss: it is not the rate that is too small.")


# --- spikes ---


def with_leap(run: dict[str, Any], norm: float) -> dict[str, Any]:
    run = copy.deepcopy(run)
    run["history"][5] |= {"train_loss": 1.2, "grad_norm": {"median": 1.0, "max": norm, "min": 0.5}}
    return run


@pytest.mark.parametrize(("norm", "expected"), [(90.0, "fired"), (3.0, "clear")])
def test_an_interval_is_a_spike_where_loss_and_norm_leap_together(norm, expected):
    finding = judge("loss_spike", with_leap(FLAT, norm))
    assert (finding.state, finding.evidence.get("since_step")) == (expected, 50 if expected == "fired" else None)


# --- waiting ---


def test_a_wait_of_a_moment_in_all_is_not_judged():
    run = waiting(FLAT, 0.9)
    run["history"] = [{**one, "seconds": 0.01} for one in run["history"]]
    assert "in all only 0.108 s" in judge("input_starvation", run).reason


def test_starting_the_loader_processes_does_not_count():
    run = {**FLAT, "history": [{**FLAT["history"][0], "data_wait": 1.0}, FLAT["history"][1]]}
    assert judge("input_starvation", run).state == "clear"
    assert judge("input_starvation", {**run, "state": "running", "history": run["history"][:1]}).state == "not_applicable"


def test_memory_is_judged_from_five_evaluations_on_and_else_it_is_said_that_it_was_not():
    assert judge("memory_growth", holding(500, 1000, 1100, 1200, 1300)).state == "fired"
    found = judge("memory_growth", holding(500, 1000, 1100, 1200))
    assert found.state == "not_applicable"
    assert found.reason == "Not judged: the memory was recorded 3 times after the first evaluation, and a trend needs 4."


def test_a_leak_within_memory_that_was_freed_shows_in_what_is_in_use():
    found = judge("memory_growth", holding(*[100.0 + 4 * nr for nr in range(8)], what="allocated_mb"))
    assert (found.state, found.evidence["grown_mb"]) == ("fired", 24)
    assert "in use went from 104 to 128 MiB" in found.reason
    assert judge("memory_growth", holding(*[100.0 + 2 * nr for nr in range(8)], what="allocated_mb")).state != "fired"


def test_a_leak_in_hundreds_of_evaluations_is_found_though_some_of_them_free_memory():
    leak = [1000.0 + 3 * nr - 10 * (nr % 7 == 0) for nr in range(300)]
    found = judge("memory_growth", holding(*leak))
    assert (found.state, found.evidence["from_mb"], found.evidence["to_mb"]) == ("fired", leak[1], leak[-1])
    assert judge("memory_growth", holding(*[1000 + 40.0 * (nr % 5) for nr in range(300)])).state == "clear"


def swinging(times: int, of: int, high: float = 0.8, low: float = 0.7) -> dict:
    """Return a run of so many evaluations, in which the training accuracy falls back so often."""
    swings = [high, low] * times
    return curve([0.4] * of, [low, *swings, *[low + 0.001 * n for n in range(1, of - len(swings))]])


def test_swings_at_the_very_share_that_is_allowed_are_none():
    assert judge("loss_oscillation", swinging(4, 20)).state == "clear"
    assert judge("loss_oscillation", swinging(5, 20)).state == "fired"


def test_a_model_at_chance_does_not_swing():
    found = judge("loss_oscillation", swinging(5, 20, high=0.5, low=0.45))
    assert found.state == "clear"
    assert "a constant answer reaches 0.5" in found.reason
