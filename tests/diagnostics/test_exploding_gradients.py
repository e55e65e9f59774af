from __future__ import annotations

import pytest

from mltrainer.diagnostics.exploding_gradients import find
from mltrainer.diagnostics.signals import Run

LIMITS = {"norm": 100, "times_median": 20, "learned_skill": 0.5}


def with_norms(run, *norms):
    """Put (median, max) of the first evaluations into a run."""
    for one, (middle, largest) in zip(run["history"], norms, strict=False):
        one["grad_norm"] = {"median": middle, "max": largest, "min": middle / 2}
    return Run.of(run)


def test_a_norm_far_above_the_earlier_ones_fires(healthy):
    finding = find(with_norms(healthy, (1, 2), (1, 2), (1, 350)), **LIMITS)
    assert finding.state == "fired"
    assert "350 (epoch 3), 350 times the median norm until then, 1" in finding.reason


def test_of_several_evaluations_of_an_epoch_the_step_is_that_of_the_large_norm(healthy):
    healthy["history"][2]["epoch"] = 2
    finding = find(with_norms(healthy, (1, 2), (1, 2), (1, 350)), **LIMITS)
    assert (finding.evidence["epoch"], finding.evidence["since_step"]) == (2, 30)


def test_large_norms_that_are_usual_for_the_run_do_not_fire(healthy):
    assert find(with_norms(healthy, *[(2000, 4000)] * 20), **LIMITS).state == "clear"


def test_norms_that_fall_by_convergence_do_not_fire(healthy):
    assert find(with_norms(healthy, (2000, 4000), *[(5, 20)] * 19), **LIMITS).state == "clear"


def test_norms_that_fall_without_learning_fire(unlearned):
    assert find(with_norms(unlearned, (2000, 4000), *[(5, 20)] * 19), **LIMITS).state == "fired"


def test_an_explosion_within_the_first_interval_fires(unlearned):
    unlearned["first_loss"] = 5000
    for one in unlearned["history"]:
        one["train"]["loss"] = 6000
    assert find(with_norms(unlearned, (9000, 90000), *[(9000, 90000)] * 19), **LIMITS).state == "clear"
    unlearned["history"][0]["grad_norm"]["min"] = 0.5
    assert find(Run.of(unlearned), **LIMITS).state == "fired"


def test_norms_far_above_the_loss_fire_where_nothing_was_learned(unlearned, healthy):
    finding = find(with_norms(unlearned, *[(9000, 12000)] * 20), **LIMITS)
    assert (finding.state, finding.evidence["since_step"]) == ("fired", 10)
    assert find(with_norms(healthy, *[(9000, 12000)] * 20), **LIMITS).state == "clear"


def test_one_norm_before_a_loss_that_is_not_finite_is_enough(broken):
    alone = {**broken, "history": [], "first_loss": None}
    alone["nonfinite"]["recent"] = {"losses": [6.0, "inf"], "norms": [900.0, "nan"]}
    assert find(Run.of(alone), **LIMITS).state == "fired"


@pytest.mark.parametrize("largest", [99, 30])
def test_a_spike_below_the_limit_does_not_fire(healthy, largest):
    assert find(with_norms(healthy, (1, largest)), **LIMITS).state == "clear"


def test_a_gradient_that_is_not_finite_fires(broken):
    broken["nonfinite"]["what"] = "gradient"
    assert find(Run.of(broken), **LIMITS).state == "fired"


def test_an_infinite_norm_in_the_history_fires(healthy):
    healthy["history"][2]["grad_norm"]["max"] = "inf"
    finding = find(Run.of(healthy), **LIMITS)
    assert (finding.state, finding.evidence["epoch"]) == ("fired", 3)


def test_a_nan_loss_out_of_nothing_does_not_fire(broken):
    broken["nonfinite"]["recent"] = {"losses": [0.7, 0.6, "nan"], "norms": [1.0, 1.1]}
    assert find(Run.of(broken), **LIMITS).state == "clear"


@pytest.mark.parametrize("name", ["losses", "norms"])
def test_growth_before_a_loss_that_is_not_finite_fires(broken, name):
    broken["nonfinite"]["recent"] = {name: [1.0, 30.0, 5e4, "inf"]}
    finding = find(Run.of(broken), **LIMITS)
    assert finding.state == "fired"
    assert "5e+04 times" in finding.reason


def test_a_run_without_norms_cannot_be_judged():
    assert find(Run.of({}), **LIMITS).state == "not_applicable"
