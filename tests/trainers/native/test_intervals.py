"""Intervals of metrics over resampled samples: right in size, the same each time, and honest where there are none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from mltrainer.records.finalization import Intervals
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.intervals import Interval, intervals

ASKED = Interval(level=0.95, resamples=400, numbers=1e6, loss=True)


class Accuracy(Task):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs.float(), targets.float())

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"accuracy": (outputs == targets).float().mean().item()}


def measured(task: Task, hits: int = 80, samples: int = 100, asked: Interval = ASKED) -> Intervals:
    """Return the intervals of a split in which so many samples are right."""
    outputs = (torch.arange(samples) < hits).long()
    return intervals(task, outputs, torch.ones(samples, dtype=torch.long), samples, 42, asked)


def test_an_interval_is_as_wide_as_the_metrics_standard_error_says():
    low, high = measured(Accuracy()).bounds["accuracy"]
    error = math.sqrt(0.8 * 0.2 / 100)
    assert low == pytest.approx(0.8 - 1.96 * error, abs=0.02)
    assert high == pytest.approx(0.8 + 1.96 * error, abs=0.02)


@pytest.mark.parametrize(("numbers", "resamples"), [(200 * 400, 400), (200 * 150, 150), (200 * 100, 100)])
def test_how_often_samples_are_drawn_is_counted_and_no_clock_decides_it(numbers, resamples):
    found = measured(Accuracy(), asked=Interval(0.95, 400, numbers))  # 100 outputs and 100 targets in each
    assert (found.resamples, list(found.bounds)) == (resamples, ["accuracy"])


def test_the_same_seed_gives_the_same_ends_and_the_loss_has_its_own():
    first, second = measured(Accuracy()), measured(Accuracy())
    assert first == second
    assert set(first.bounds) == {"accuracy", "loss"}
    assert set(measured(Accuracy(), asked=Interval(0.95, 10, 1e6)).bounds) == {"accuracy"}


def test_a_metric_without_spread_gets_no_interval_that_would_pretend_to_be_sure():
    found = measured(Accuracy(), hits=100)
    assert found.bounds == {}
    assert "no spread" in found.reason


class Refusing(Accuracy):
    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        raise ValueError("only one class present")


@pytest.mark.parametrize(
    ("task", "asked", "reason"),
    [
        (Refusing(), ASKED, "only one class present"),
        (Accuracy(), Interval(0.95, 1000, 199 * 100), "100 resamples of 200 numbers are more than the 19,900"),
    ],
)
def test_what_cannot_be_measured_so_often_is_told_and_ends_nothing(task, asked, reason):
    found = measured(task, asked=asked)
    assert found.bounds == {}
    assert reason in found.reason


def test_outputs_that_are_not_one_row_per_sample_are_not_drawn():
    found = intervals(Accuracy(), torch.ones(100), torch.ones(100), 50, 42, ASKED)
    assert "100 rows for 50 samples" in found.reason
