"""What measured curves and sizes suggest, and when they suggest nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mltrainer.companions.questions.batch_size import Size, adaptations, doubled, needed_mb, needed_s, suggest_size
from mltrainer.companions.questions.data_scaling import Curves, StepCurve, UnfittedSteps
from mltrainer.companions.questions.findings import Suggestion
from mltrainer.companions.questions.measurements.learning_rate import Smoothing, diverged, log_spaced, suggest_rate
from mltrainer.configs.project import TrainingConfig

RATES = log_spaced(1e-7, 10.0, 100)


def suggestion(loss: Callable[[int, float], float], beta: float = 0.9) -> Suggestion:
    """Return what a curve of (step, rate) suggests, cut where the tool would stop."""
    smoothing = Smoothing(beta)
    losses: list[float] = []
    smoothed: list[float] = []
    for nr, rate in enumerate(RATES):
        losses.append(loss(nr, rate))
        smoothed.append(smoothing.add(losses[-1]))
        if diverged(smoothed, 4):
            break
    return suggest_rate(RATES[: len(losses)], losses, smoothed, 10, 1.5)


def valley(nr: int, rate: float) -> float:
    """A loss that falls around 1e-3, stays low around 1e-2 and explodes above 0.1, with noise."""
    fall = 1 / (1 + math.exp(-3 * math.log10(rate / 1e-3)))
    return 2.3 - 2 * fall + (rate / 0.1) ** 2 + 0.02 * math.sin(9 * nr)


def test_rates_are_spaced_by_a_factor():
    assert log_spaced(1e-3, 10.0, 5) == pytest.approx([1e-3, 1e-2, 0.1, 1.0, 10.0])


def test_smoothing_has_no_bias_to_its_start():
    smoothing = Smoothing(0.9)
    assert [smoothing.add(3.0) for _ in range(5)] == pytest.approx([3.0] * 5)


def test_a_rate_where_the_loss_falls_is_suggested_with_its_reason():
    found = suggestion(valley)
    assert found.value is not None
    assert 3e-4 <= found.value <= 1e-2
    assert "falls steepest at" in found.reason


def test_a_loss_that_turns_right_after_it_fell_keeps_the_suggestion_away_from_the_turn():
    found = suggestion(lambda nr, rate: 2.3 - 1.5 * (1e-3 < rate < 3e-3) + 30 * (rate >= 3e-3))
    assert found.value is not None
    assert found.value < 1e-3
    assert "keeps away" in found.reason


def test_a_loss_that_is_lowest_where_the_range_ends_sends_higher_and_tells_of_no_turn():
    found = suggestion(lambda nr, rate: 2.3 - 2 * (rate / 10.0))
    assert found.value == 1.0
    assert "keeps away" not in found.reason
    assert "raise --to" in found.reason


NOTHING: dict[str, tuple[Callable[[int, float], float], str]] = {
    "flat": (lambda nr, rate: 2.3, "never fell clearly"),
    "only noise": (lambda nr, rate: 2.3 + 0.1 * math.sin(7.1 * nr * nr), "never fell clearly"),
    "falling a little": (lambda nr, rate: 2.3 + 0.1 * math.sin(7.1 * nr * nr) - 0.02 * rate, "raise --to"),
    "rising": (lambda nr, rate: 2.3 + nr * 0.01, "never fell clearly"),
    "diverged at once": (lambda nr, rate: 2.3 * 20.0**nr, "lower --from"),
    "not a number at once": (lambda nr, rate: math.nan, "look at data, model and loss"),
    "infinite from the start": (lambda nr, rate: math.inf, "look at data, model and loss"),
    "infinite at once": (lambda nr, rate: 2.3 if nr == 0 else math.inf, "lower --from"),
}


@pytest.mark.parametrize("curve", NOTHING)
def test_a_curve_that_shows_nothing_suggests_nothing_and_says_why(curve):
    loss, reason = NOTHING[curve]
    found = suggestion(loss)
    assert found.value is None
    assert reason in found.reason


def test_a_curve_that_ends_in_nan_is_read_up_to_there():
    found = suggestion(lambda nr, rate: math.nan if rate > 0.03 else valley(nr, rate))
    assert found.value is not None
    assert 3e-4 <= found.value <= 1e-2


@pytest.mark.parametrize(("values", "expected"), [([1, 3.9], False), ([1, 4.1], True), ([-1, 1.9], False), ([-1, 2.1], True)])
def test_a_loss_diverged_when_it_is_four_times_its_best(values, expected):
    assert diverged(values, 4) is expected


# --- batch sizes ----------------------------------------------------------------------------------


def sizes(**rates: float) -> list[Size]:
    return [measured(batch_size=int(size[1:]), samples_per_s=rate) for size, rate in rates.items()]


def measured(**values: float) -> Size:
    return Size.model_validate({"batch_size": 8, "step_us": 1.0, "samples_per_s": 1.0, "peak_mb": 100.0, **values})


def test_sizes_double_up_to_the_samples():
    assert list(doubled(8, 100)) == [8, 16, 32, 64]
    assert list(doubled(8, 5)) == [5]


def test_the_smallest_size_near_the_best_throughput_is_suggested():
    found = suggest_size(sizes(b8=100, b16=190, b32=196, b64=200), 0.05)
    assert found == Suggestion(16, "190 samples/s; 64 would bring only 5.3% more")
    assert suggest_size(sizes(b8=100, b16=190, b32=300), 0.05).value == 32
    assert suggest_size(sizes(b8=300, b16=200), 0.05) == Suggestion(
        8, "the most of all, 300 samples/s; smaller ones were not tried"
    )


def test_where_no_size_fits_none_is_suggested():
    assert suggest_size([], 0.05).value is None


def test_twice_the_batch_needs_twice_what_the_last_doubling_added():
    assert needed_mb([measured(peak_mb=peak) for peak in (100.0, 120.0, 160.0)]) == 240
    assert needed_mb([measured(peak_mb=100.0)]) == 100


def test_the_time_to_expect_doubles_with_the_batch():
    assert needed_s([measured(step_us=1e6), measured(step_us=1.5e6)], steps=3) == 9


def config(**changes: Any) -> TrainingConfig:
    own = {"name": "x", "task": {"use": "a:B"}, "metric": {"name": "loss", "mode": "min"}}
    return TrainingConfig.model_validate({**own, "batch_size": 64, **changes})


def changes(size: int, **given: Any) -> list[dict[str, Any]]:
    return [row.written()["set"] for row in adaptations(size, config(**given))]


def test_a_smaller_batch_keeps_the_samples_of_a_step_by_accumulating():
    assert changes(16)[0] == {"batch_size": 16, "accumulate": 4}


def test_with_more_samples_in_a_step_the_rate_grows_as_the_optimizer_needs():
    adam, sgd = {"name": "adamw", "lr": 1e-3}, {"name": "sgd", "lr": 0.1}
    assert changes(256, optimizer=adam) == [{"batch_size": 256, "accumulate": 1, "optimizer.lr": 2e-3}]
    assert changes(256, optimizer=sgd) == [{"batch_size": 256, "accumulate": 1, "optimizer.lr": 0.4}]


def test_the_present_size_changes_nothing():
    assert changes(64) == []
    assert changes(128, accumulate=2) == [{"batch_size": 128, "accumulate": 1}]


def test_findings_are_written_as_they_were_given_and_read_back():
    slope = StepCurve(steps=[1, 2], losses=[0.5, math.nan])
    curves = Curves(epochs=UnfittedSteps.of(slope, reason="too few"))
    assert curves.written() == {"epochs": {"steps": [1, 2], "losses": [0.5, "nan"], "reason": "too few"}}
    read = Curves.model_validate(curves.written())
    assert isinstance(read.epochs, UnfittedSteps)
    assert math.isnan(read.epochs.losses[1])
