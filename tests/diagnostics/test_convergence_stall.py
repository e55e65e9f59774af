from __future__ import annotations

import pytest

from mltrainer.diagnostics.convergence_stall import find
from mltrainer.diagnostics.signals import Run
from tests.diagnostics.conftest import result, row

LIMITS = {"epochs": 10, "gain": 0.01, "learned_skill": 0.5, "update_low": 5e-5, "update_high": 0.1}


def flat(epochs, accuracy=0.55):
    """Progress in three epochs, then nothing for so many epochs."""
    return result([*(row(n, 0.4 + 0.05 * n, 0.4 + 0.05 * n, 1.0 / n) for n in (1, 2, 3)), *_rest(epochs, accuracy)])


def _rest(epochs, accuracy):
    return [row(3 + n, accuracy, accuracy, 1.0 / 3) for n in range(1, epochs + 1)]


@pytest.mark.parametrize(("epochs", "expected"), [(10, "fired"), (30, "fired"), (9, "clear")])
def test_ten_epochs_without_gain_at_the_end_fire(epochs, expected):
    finding = find(Run.of(flat(epochs)), **LIMITS)
    assert finding.state == expected
    assert finding.evidence["epochs_without_gain"] == epochs


def test_a_model_that_has_learned_converged_and_the_epoch_is_told():
    run = result([row(n, 0.95, 0.95, 0.1) for n in range(1, 20)])
    finding = find(Run.of(run), **LIMITS)
    assert finding.state == "clear"
    assert finding.reason.startswith("Converged at epoch 1")


def test_a_model_that_learned_by_heart_has_a_gap_and_no_stall():
    finding = find(Run.of(result([row(n, 1.0, 0.5, 0.7) for n in range(1, 20)])), **LIMITS)
    assert finding.state == "clear"
    assert "a gap, no stall" in finding.reason


def test_slow_but_steady_progress_of_the_loss_is_no_stall():
    run = result([row(n, 0.5, 0.5, 0.7 * 0.985**n) for n in range(1, 31)])
    assert find(Run.of(run), **LIMITS).state == "clear"


def test_a_gain_is_judged_by_the_size_of_the_loss():
    run = result([row(n, 0.5, 0.5, 100 - 0.05 * n) for n in range(1, 16)])  # 0.7 % in all, and far more than 0.01
    assert find(Run.of(run), **LIMITS).state == "fired"


def test_progress_of_the_metric_alone_is_no_stall():
    run = result([row(n, 0.5, 0.5 + 0.002 * n, 0.7) for n in range(1, 31)])
    assert find(Run.of(run), **LIMITS).state == "clear"


def test_evaluations_between_epochs_do_not_count_as_epochs():
    rows = [row(1 + n // 10, 0.5, 0.5, 0.7) for n in range(60)]
    assert find(Run.of(result(rows)), **LIMITS).state == "not_applicable"


def test_a_metric_that_is_best_when_small_is_followed_downwards(unlearned):
    for n, one in enumerate(unlearned["history"]):
        one["validation"] = {"loss": 1.0, "mae": 5.0 * 0.98**n}
        one["train"] = {"loss": 1.0, "mae": 5.0}
    run = {**unlearned, "metric": {"name": "mae", "mode": "min"}, "evaluation": None, "first_loss": 1.0}
    assert find(Run.of(run), **LIMITS).state == "clear"


@pytest.mark.parametrize("epochs", [0, 1, 5])
def test_a_short_run_cannot_be_judged(epochs):
    run = result([row(n, 0.5, 0.5) for n in range(1, epochs + 1)])
    assert find(Run.of(run), **LIMITS).state == "not_applicable"


@pytest.mark.parametrize(
    ("update", "hint"), [(1e-9, "the steps are too short"), (0.5, "the steps are too long"), (1e-3, "0.5).")]
)
def test_the_size_of_the_updates_tells_which_way_the_rate_should_go(unlearned, update, hint):
    for one in unlearned["history"]:
        one["update_ratios"] = [update, update]
    assert find(Run.of(unlearned), **LIMITS).reason.rstrip(".").endswith(hint.rstrip("."))
