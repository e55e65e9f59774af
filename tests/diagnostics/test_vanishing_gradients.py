from __future__ import annotations

import pytest

from mltrainer.diagnostics.signals import Run
from mltrainer.diagnostics.vanishing_gradients import find

LIMITS = {"layer_ratio": 0.001, "relative_norm": 0.001, "learned_skill": 0.5}


def with_layers(run, norms, rows=20):
    for one in run["history"][:rows]:
        one["layer_norms"] = norms
    return Run.of(run)


def test_a_starved_first_layer_of_a_model_at_chance_fires(unlearned):
    finding = find(with_layers(unlearned, [1e-7, 1e-4, 0.2]), **LIMITS)
    assert finding.state == "fired"
    assert "the first layer (0.weight) received 5e-07 of the last layer's gradient" in finding.reason


def test_the_same_layers_in_a_model_that_has_learned_are_convergence(healthy):
    finding = find(with_layers(healthy, [1e-7, 1e-4, 0.2]), **LIMITS)
    assert finding.state == "clear"
    assert "convergence" in finding.reason


def test_a_model_that_learned_its_training_set_by_heart_does_not_fire(unlearned):
    for one in unlearned["history"]:
        one["train"]["accuracy"] = 1.0
        one["grad_norm"] = {"median": 1e-6, "max": 1e-5, "min": 1e-7}
    assert find(Run.of(unlearned), **LIMITS).state == "clear"


def test_layers_that_fade_in_the_second_half_only_do_not_fire(unlearned):
    with_layers(unlearned, [1e-7, 1e-4, 0.2])
    run = with_layers(unlearned, [0.5, 0.4, 0.6], rows=10)
    assert find(run, **LIMITS).state == "clear"


def test_a_first_layer_that_never_receives_a_gradient_fires(unlearned):
    finding = find(with_layers(unlearned, [0.0, 0.3, 0.2]), **LIMITS)
    assert finding.state == "fired"
    assert "exactly zero" in finding.reason


def test_units_that_die_later_do_not_hide_the_rows_before(unlearned):
    with_layers(unlearned, [0.0, 0.0, 0.2])
    run = with_layers(unlearned, [0.3, 0.2, 0.2], rows=2)
    assert find(run, **LIMITS).state == "clear"


def test_only_the_first_layer_starved_points_at_the_inputs(unlearned):
    finding = find(with_layers(unlearned, [1e-6, 0.3, 0.2]), **LIMITS)
    assert "look at the scale of the inputs" in finding.reason


@pytest.mark.parametrize(("first_loss", "expected"), [(0.7, "fired"), (1e-5, "clear")])
def test_a_norm_is_judged_relative_to_the_first_loss(unlearned, first_loss, expected):
    unlearned["first_loss"] = first_loss
    for one in unlearned["history"]:
        one["grad_norm"] = {"median": 1e-5, "max": 1e-5, "min": 1e-5}
        one["train"]["accuracy"] = one["validation"]["accuracy"] = 0.5
    assert find(Run.of(unlearned), **LIMITS).state == expected


def test_a_linear_model_has_no_ratio_of_layers(unlearned):
    finding = find(with_layers(unlearned, [1e-7]), **LIMITS)
    assert (finding.state, finding.evidence["layer_ratio"]) == ("clear", None)


def test_a_linear_model_is_judged_by_the_norm_of_all_its_gradients(unlearned):
    unlearned["layers"] = ["weight"]
    for one in unlearned["history"]:
        one |= {"layer_norms": [1e-5], "grad_norm": {"median": 1e-5, "max": 1e-5, "min": 1e-5}}
    finding = find(Run.of(unlearned), **LIMITS)
    assert finding.state == "fired"
    assert "the model has one layer of weights" in finding.reason


def test_a_run_without_norms_cannot_be_judged():
    assert find(Run.of({}), **LIMITS).state == "not_applicable"
