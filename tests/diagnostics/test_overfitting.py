from __future__ import annotations

import math

import pytest

from mltrainer.diagnostics import overfitting
from mltrainer.diagnostics.overfitting import find
from mltrainer.diagnostics.signals import Run
from tests.diagnostics.conftest import result, row

LIMITS = {"gap": 0.15, "skill": 0.3, "standard_errors": 2, "rise": 1.1, "wide": 0.5}


def state(rows, **more):
    return find(Run.of(result(rows, **more)), **LIMITS).state


def regression(train, validation, rise):
    values = [(1, 0.3, 0.3, 1.0), *((n, train, validation, rise) for n in (2, 3, 4))]
    return [
        {"epoch": n, "train_loss": 1.0, "train": {"loss": 0.1, "r2": a}, "validation": {"loss": loss, "r2": b}}
        for n, a, b, loss in values
    ]


def r2(train, validation, rise):
    return state(regression(train, validation, rise), metric={"name": "r2", "mode": "max"}, evaluation={"kind": "regression"})


@pytest.mark.parametrize(("train", "validation", "expected"), [(1.0, 0.84, "fired"), (1.0, 0.86, "clear"), (0.9, 0.95, "clear")])
def test_a_gap_of_more_than_fifteen_points_fires(train, validation, expected):
    assert state([row(n, train, validation) for n in range(1, 6)]) == expected


def test_the_reason_gives_both_values_gap_and_threshold():
    reason = find(Run.of(result([row(n, 1.0, 0.8) for n in range(1, 6)])), **LIMITS).reason
    assert "is 100 % on the training set and 80 % on the validation set, a gap of 20 points (at most 15 allowed)" in reason


def test_a_gap_that_opens_after_the_best_evaluation_fires():
    opened = [row(1, 0.86, 0.85), *(row(n, 1.0, 0.7) for n in range(2, 8))]
    assert state(opened) == "fired"


def test_the_end_of_a_curve_is_said_to_be_a_median_of_evaluations():
    rows = [row(n, 0.9, value) for n, value in enumerate((0.9, 0.7, 0.6, 0.5), 1)]
    reason = find(Run.of(result(rows)), **LIMITS).reason
    assert reason.startswith("At the end (the median of up to 3 evaluations) accuracy is 90 % on the training set and 60 %")


def test_one_noisy_evaluation_at_the_end_is_no_gap():
    assert state([*(row(n, 0.92, 0.9) for n in range(1, 8)), row(8, 0.95, 0.7)]) == "clear"


def test_a_model_at_chance_has_no_gap_to_speak_of():
    finding = find(Run.of(result([row(n, 0.6, 0.42) for n in range(1, 6)])), **LIMITS)
    assert finding.state == "clear"
    assert "training skill of 0.2 is not above 0.3" in finding.reason


def test_a_gap_within_the_noise_of_a_small_validation_set_is_not_judged():
    small = {"kind": "classification", "confusion": [[4, 1], [1, 4]]}
    finding = find(Run.of(result([row(n, 1.0, 0.8) for n in range(1, 6)], evaluation=small)), **LIMITS)
    assert finding.state == "clear"
    assert "errs by" in finding.reason


def test_the_noise_of_a_task_without_confusion_matrix_comes_from_the_samples_that_were_measured():
    rows, known = [row(n, 1.0, 0.8) for n in range(1, 6)], {"measured_samples": {"train": 10, "validation": 10}}
    finding = find(Run.of(result(rows, evaluation=None, **known)), **LIMITS)
    assert finding.state == "clear"
    assert finding.evidence["standard_error"] == pytest.approx((0.8 * 0.2 / 10) ** 0.5)
    assert find(Run.of(result(rows, evaluation=None)), **LIMITS).state == "fired"


@pytest.mark.parametrize(
    ("train", "validation", "rise", "expected"),
    [(0.99, 0.5, 1.5, "fired"), (0.99, 0.5, 1.0, "clear"), (0.99, 0.95, 1.5, "clear"), (0.2, -0.5, 1.5, "clear")],
)
def test_regression_needs_a_gap_of_r2_and_a_rising_loss(train, validation, rise, expected):
    assert r2(train, validation, rise) == expected


def test_what_the_trained_weights_learned_is_compared_with_their_own_validation_and_not_with_that_of_a_slow_average():
    rows = [{**row(n, 0.5, 0.5, 3.0, train_loss=0.05), "trained": {"accuracy": 0.93, "loss": 0.2}} for n in range(1, 6)]
    assert find(Run.of(result(rows)), **LIMITS).state == "clear"
    worse = [{**one, "trained": {"accuracy": 0.6, "loss": 3.0}} for one in rows]
    finding = find(Run.of(result(worse)), **LIMITS)
    assert finding.state == "fired"
    assert "60 % on the validation set with the trained weights, not their average, a gap of" in finding.reason


def test_batches_that_were_learned_but_not_in_evaluation_mode_fire():
    rows = [row(n, 0.5, 0.5, 3.0, train_loss=0.05) for n in range(1, 6)]
    finding = find(Run.of(result(rows)), **LIMITS)
    assert finding.state == "fired"
    assert finding.evidence["train_from"] == "loss of the training batches"
    assert "at least 92.8 %" in finding.reason


def test_a_loss_that_is_no_cross_entropy_says_nothing_of_accuracy():
    rows = [row(n, 0.5, 0.5, 0.01, train_loss=0.001) for n in range(1, 6)]
    assert state(rows) == "clear"


@pytest.mark.parametrize(("last", "expected"), [(2.0, "fired"), (1.0, "clear")])
def test_without_a_bounded_metric_the_loss_is_judged(last, expected):
    losses = [(1, 2.5, 2.5), (2, 0.8, 1.0), *((n, 0.5, last) for n in range(3, 7))]
    rows = [{"epoch": n, "train_loss": a, "train": {"loss": a}, "validation": {"loss": b}} for n, a, b in losses]
    assert state(rows, metric={"name": "loss", "mode": "min"}, evaluation=None) == expected


def test_a_run_without_evaluations_cannot_be_judged():
    assert state([]) == "not_applicable"


def test_a_loss_that_ended_without_a_number_cannot_be_judged():
    rows = [{"epoch": n, "train": {"loss": "nan"}, "validation": {"loss": 1.0}} for n in (1, 2)]
    assert state(rows, metric={"name": "loss", "mode": "min"}, evaluation=None) == "not_applicable"


def test_a_weighted_loss_tells_no_accuracy_of_the_batches():
    row = {"epoch": 1, "train_loss": 0.01, "train": {"loss": 0.3, "accuracy": 0.8}}
    rows = [{**row, "validation": {"loss": 0.3, "log_loss": log_loss, "accuracy": 0.79}} for log_loss in (0.3, 0.45)]
    plain, weighted = (overfitting._least_accuracy(Run.of({"history": [one]})) for one in rows)
    assert plain > 0.98
    assert math.isnan(weighted)
