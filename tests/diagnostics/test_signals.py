from __future__ import annotations

import math

import pytest

from mltrainer.diagnostics.signals import Run, number, ratio, settled
from tests.diagnostics.conftest import result, row


@pytest.mark.parametrize(("value", "expected"), [("inf", math.inf), ("-inf", -math.inf), (3, 3.0), (0.5, 0.5)])
def test_recorded_values_become_floats(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize("value", ["nan", None, "abc", True, [1]])
def test_what_is_no_number_is_nan(value):
    assert math.isnan(number(value))


def test_a_ratio_to_zero_is_infinite_and_of_two_zeros_unknown():
    assert ratio(1, 0) == math.inf
    assert math.isnan(ratio(0, 0))


def test_a_curve_ends_at_the_median_of_its_last_values():
    assert settled([9, 9, 1.0, 5.0, 2.0]) == 2.0


def test_skill_is_accuracy_relative_to_the_most_frequent_class():
    uneven = {"kind": "classification", "confusion": [[60, 15], [5, 20]]}
    run = Run.of(result([row(1, 0.9, 0.9)], evaluation=uneven))
    assert run.chance == 0.75
    assert run.skill == pytest.approx(0.6)


def test_skill_of_a_regression_is_r2():
    rows = [{"epoch": 1, "train": {"loss": 1, "r2": 0.8}, "validation": {"loss": 1, "r2": 0.7}}]
    assert Run.of(result(rows, metric={"name": "r2", "mode": "max"}, evaluation=None)).skill == 0.7


def test_without_classes_skill_is_the_share_of_the_first_loss_that_is_gone():
    run = Run.of(result([row(1, 0.9, 0.9, 0.35)], evaluation=None))
    assert run.skill == 0.5


def test_skill_of_a_run_without_evaluations_is_unknown():
    run = Run.of(result([]))
    assert math.isnan(run.skill)
    assert not run.learned(0.5)


def test_the_best_evaluation_is_the_first_of_equals_in_the_metrics_direction():
    run = Run.of(result([row(1, 0.5, 0.8), row(2, 0.5, 0.9), row(3, 0.5, 0.9)]))
    assert run.best_row == 1
    lowest = Run.of(result([row(1, 0.5, 0.8, 0.3), row(2, 0.5, 0.9, 0.2)], metric={"name": "loss", "mode": "min"}))
    assert lowest.best_row == 1
    assert lowest.score == "accuracy"


def test_an_empty_record_has_no_signals_and_no_error():
    run = Run.of({})
    assert (run.history, run.layers, run.class_counts, run.finished, run.metric_name) == ([], [], [], False, "loss")
