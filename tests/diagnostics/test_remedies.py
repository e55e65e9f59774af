"""What may cure a finding, and the verdict on what each change did."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import baseline_template
from mltrainer.diagnostics.remedies import (
    CURES,
    HELPS,
    NOT_TOLD_APART,
    NOTHING,
    TEMPLATE,
    TOGETHER,
    WORSE,
    Outcome,
    candidates,
    compared,
    ranked,
    template_changes,
    together,
    verdict,
)
from mltrainer.diagnostics.rules import diagnose
from mltrainer.diagnostics.signals import Run
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.records.partial import partial
from tests.projects import PROJECT

NAN = math.nan
DECAY = "optimizer.weight_decay"
ADAMW = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01}
MANY = 100_000  # rows, by which nearly any two metrics are told apart
BEFORE = Outcome(("learning_rate_low", "underfitting"), (), "underfitting", 0.5, MANY)
BOTH = ("learning_rate_low", "underfitting")


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**baseline_template(None), **PROJECT, **changes})


def fired(*suggestions: dict[str, Any], **other: str) -> Diagnosis:
    listed = [{"why": "because", "set": one} for one in suggestions]
    told = {"id": "underfitting", "state": "fired", "severity": "warning", "page": "p", "suggestions": listed}
    return partial(Diagnosis, {**told, **other})


# --- the verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Outcome((), (), "good", 0.9), CURES),
        (Outcome((), (), "good", 0.5), CURES),
        (Outcome((), (), "unknown", 0.9), CURES),
        (Outcome(("loss_spike",), (), "good", 0.9), CURES),
        (Outcome((), (), "underfitting", 0.5), HELPS),  # gone, but nothing is learned
        (Outcome(("underfitting",), (), "good", 0.5), HELPS),
        (Outcome(BOTH, (), "underfitting", 0.6), HELPS),
        (Outcome(("nan_loss",), ("nan_loss",), "good", 0.9), HELPS),  # something critical fires: no cure
        (Outcome(BOTH, (), "underfitting", 0.5), NOTHING),
        (Outcome(BOTH, (), "underfitting", 0.499), NOTHING),
        (Outcome((), (), "good", 0.4), WORSE),  # gone, and the metric with it
        (Outcome(("dead_layers",), ("dead_layers",), "good", 0.5), WORSE),
        (Outcome((), (), "unknown", NAN), WORSE),
    ],
)
def test_gone_is_not_cured_unless_the_model_learns(after, expected):
    assert verdict(BEFORE, after, BOTH, "max")[0] == expected


@pytest.mark.parametrize(("beats", "expected"), [(False, NOTHING), (True, HELPS), (None, HELPS)])
def test_what_is_still_below_a_constant_answer_does_not_help(beats, expected):
    after = Outcome(("underfitting",), (), "underfitting", 0.6, MANY, beats)
    word, why = verdict(BEFORE, after, BOTH, "max")
    assert word == expected
    assert ("still no better than a constant answer" in why) is (beats is False)


def test_a_run_that_failed_is_cured_by_a_good_fit_not_by_having_a_metric():
    before = Outcome(("nan_loss",), ("nan_loss",), "unknown", NAN, MANY)
    assert verdict(before, Outcome((), (), "good", 0.9), ["nan_loss"], "max")[0] == CURES
    assert verdict(before, Outcome((), (), "underfitting", 0.1), ["nan_loss"], "max")[0] == HELPS
    assert verdict(before, before, ["nan_loss"], "max")[0] == NOTHING
    assert verdict(before, Outcome((), (), "unknown", NAN), ["nan_loss"], "max")[0] == NOTHING  # it failed in another way


def test_what_the_unchanged_config_did_not_show_cannot_be_cured():
    healthy = Outcome((), (), "good", 0.9, MANY)
    assert verdict(healthy, healthy, [], "max")[0] == NOTHING
    assert verdict(healthy, Outcome((), (), "good", 0.95), [], "max")[0] == HELPS


def test_the_verdict_says_why():
    after = Outcome(("underfitting", "dead_layers"), ("dead_layers",), "underfitting", 0.5)
    why = verdict(BEFORE, after, BOTH, "max")[1]
    assert why == "no more learning_rate_low; still underfitting; new dead_layers; metric equal"


def at(value: float, rows: int | None = None) -> Outcome:
    return Outcome((), (), "good", value, rows)


@pytest.mark.parametrize(
    ("before", "after", "mode", "expected"),
    [
        (0.5, 0.6, "max", "better"),
        (0.6, 0.5, "max", "worse"),
        (0.6, 0.5, "min", "better"),
        (0.6, 0.602, "max", "equal"),
        (0.0, 0.0, "max", "equal"),
        (NAN, 1.0, "min", "better"),
        (1.0, NAN, "min", "worse"),
    ],
)
def test_metrics_are_compared_in_their_direction(before, after, mode, expected):
    assert compared(at(before, MANY), at(after, MANY), mode) == expected


@pytest.mark.parametrize(
    ("before", "after", "rows", "comparisons", "expected"),
    [
        (0.9777, 0.9888, 358, 1, NOT_TOLD_APART),
        (0.9888, 0.9777, 358, 1, NOT_TOLD_APART),
        (0.90, 0.95, 358, 1, "better"),
        (0.90, 0.95, 358, 40, NOT_TOLD_APART),  # of forty changes one looks so good by luck
        (2.0, 1.0, None, 1, NOT_TOLD_APART),  # of a loss one seed shows no interval
    ],
)
def test_what_so_few_rows_leave_to_chance_is_neither_better_nor_worse(before, after, rows, comparisons, expected):
    assert compared(at(before, rows), at(after, rows), "max", comparisons) == expected


def test_a_metric_without_an_interval_never_helps_and_what_looks_worse_cures_nothing():
    before = Outcome(BOTH, (), "underfitting", 2.0)
    assert verdict(before, Outcome(BOTH, (), "underfitting", 1.0), BOTH, "min")[0] == NOT_TOLD_APART
    assert verdict(before, Outcome((), (), "good", 1.0), BOTH, "min")[0] == CURES
    said = "no more learning_rate_low, underfitting; metric no clear difference"
    assert verdict(before, Outcome((), (), "good", 3.0), BOTH, "min") == (NOT_TOLD_APART, said)


def test_the_best_stands_first_by_verdict_then_metric():
    pairs = [("changes nothing", 0.9), ("cures", 0.8), ("makes it worse", NAN), ("cures", 0.85), ("helps", 0.99)]
    rows = [SimpleNamespace(verdict=verdict, value=value) for verdict, value in pairs]
    found = [(row.verdict, row.value) for row in ranked(rows, "max")]
    assert found[:4] == [("cures", 0.85), ("cures", 0.8), ("helps", 0.99), ("changes nothing", 0.9)]
    assert ranked(rows, "min")[0].value == 0.8


# --- what is tried --------------------------------------------------------------------------------


def test_the_template_comes_first_then_each_suggestion_then_all_of_them():
    given = config(optimizer={"name": "adamw", "lr": 1e-8, "weight_decay": 0.01})
    rows = [fired({"optimizer.lr": 0.002}, {"epochs": "x2"})]
    found, left_out = candidates(rows, given, baseline_template(None))
    assert [one.name for one in found] == [TEMPLATE, "optimizer.lr=0.002", "epochs=40", TOGETHER]
    assert [one.changes for one in found][::3] == [{"optimizer.lr": 1e-3}, {"optimizer.lr": 0.002, "epochs": 40}]
    assert left_out == []


def test_a_shorter_trial_changes_no_epochs_and_tries_nothing_twice():
    given = config(optimizer={"name": "adamw", "lr": 1e-8, "weight_decay": 0.01})
    found, _ = candidates([fired({"optimizer.lr": 0.001}, {"epochs": "x2"})], given, baseline_template(None), is_shorter=True)
    assert [one.name for one in found] == [TEMPLATE]  # the suggestion, and all together, are the same change


def test_nothing_is_tried_where_nothing_fired():
    rows = [fired({"epochs": "x2"}, state="clear")]
    assert candidates(rows, config(batch_size=7), baseline_template(None)) == ([], [])


def test_what_is_about_the_machines_time_is_no_symptom():
    waiting = fired({"batch_size": "x2"}, severity="info", id="input_starvation")
    assert candidates([waiting], config(epochs=3), baseline_template(None)) == ([], [])


def test_a_change_that_cannot_be_tried_is_told_with_the_reason():
    found, left_out = candidates([fired({"loader.prefetch": 4}, {"batch_size": "x2"})], config(), baseline_template(None))
    assert [one.name for one in found] == ["batch_size=128"]
    assert [one["name"] for one in left_out] == ["loader.prefetch=4", TOGETHER][:1]
    assert "changes nothing of a training" in left_out[0]["reason"]


def test_a_config_that_is_the_template_needs_no_change():
    assert template_changes(config().model_dump(), baseline_template(None)) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optimizer": {"name": "sgd", "lr": 9.0}}, {"optimizer.name": "adamw", "optimizer.lr": 1e-3, DECAY: 0.01}),
        ({"optimizer": {**ADAMW, "betas": [0.1, 0.2]}}, {"optimizer.betas": [0.9, 0.999]}),
        ({"clip": None}, {"clip.norm": 1.0}),
        ({"clip": {"value": 2.0}}, {"clip.norm": 1.0, "clip.value": None}),
        ({"averaging": {"name": "ema"}}, {"averaging": None}),
        ({"epochs": 5}, {"epochs": 20}),
        ({"epochs": 50}, {}),  # a cure takes no training away
        ({"threads": 2, "device": "cpu", "evaluate": {"every_n_steps": 5}}, {}),
    ],
)  # fmt: skip
def test_the_templates_training_keys_are_taken_where_the_config_differs(changes, expected):
    given = config(**changes)
    found = template_changes(given.model_dump(), baseline_template(None))
    assert found == expected


def test_of_suggestions_that_exclude_each_other_the_first_stays():
    assert together([{"clip.norm": 1.0}, {"clip.value": 0.5}, {"epochs": 40}, {"epochs": 80}]) == {"clip.norm": 1.0, "epochs": 40}


def test_every_shipped_suggestion_gives_a_config_that_can_be_tried_or_a_reason():
    rows = [row.model_copy(update={"state": "fired"}) for row in diagnose(Run.of({"state": "finished"}), None)]
    found, left_out = candidates(rows, config(), baseline_template(None))
    assert found
    assert all(one["reason"] for one in left_out)
