"""Intervals of metrics over samples drawn anew: right in size, the same each time, and honest where there are none."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import Tensor, nn

from mltrainer.records.finalization import Intervals
from mltrainer.tasks.tables.task import TabularClassification
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.intervals import Interval, intervals

ASKED = Interval(level=0.95, resamples=400, seconds=30.0, loss=True)


class Accuracy(Task):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs.float(), targets.float())

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"accuracy": (outputs == targets).float().mean().item()}


def measured(task: Task, hits: int = 80, samples: int = 100, asked: Interval = ASKED) -> Intervals:
    """Return the intervals of a split in which so many samples are right."""
    outputs = (torch.arange(samples) < hits).long()
    return intervals(task, outputs, torch.ones(samples, dtype=torch.long), samples, 42, asked)


def test_an_interval_is_as_wide_as_the_metrics_standard_error_says() -> None:
    low, high = measured(Accuracy()).bounds["accuracy"]
    error = math.sqrt(0.8 * 0.2 / 100)
    assert low == pytest.approx(0.8 - 1.96 * error, abs=0.02)
    assert high == pytest.approx(0.8 + 1.96 * error, abs=0.02)


def test_of_a_built_in_task_those_that_decide_have_intervals_where_all_would_take_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = TabularClassification.__new__(TabularClassification)
    task.labels = torch.tensor([0, 1] * 30).numpy()
    monkeypatch.setattr(task, "metrics", lambda *_: time.sleep(0.2) or {"accuracy": 1.0})
    outputs = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    asked = Interval(level=0.95, resamples=100, seconds=5.0, deciding=("roc_auc",))
    found = intervals(task, outputs, torch.tensor([0, 1] * 30), 60, 42, asked)
    assert list(found.bounds) == ["roc_auc"]
    assert found.reason is None


def test_the_same_seed_gives_the_same_ends_and_the_loss_has_its_own() -> None:
    first, second = measured(Accuracy()), measured(Accuracy())
    assert first == second
    assert set(first.bounds) == {"accuracy", "loss"}
    assert set(measured(Accuracy(), asked=Interval(0.95, 10, 30.0)).bounds) == {"accuracy"}


def test_a_metric_without_spread_gets_no_interval_that_would_pretend_to_be_sure() -> None:
    found = measured(Accuracy(), hits=100)
    assert found.bounds == {}
    assert "no spread" in found.reason


class Refusing(Accuracy):
    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        raise ValueError("only one class present")


class Slow(Accuracy):
    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        time.sleep(0.002)
        return super().metrics(outputs, targets)


@pytest.mark.parametrize(
    ("task", "asked", "reason"),
    [
        (Refusing(), ASKED, "only one class present"),
        (Slow(), Interval(0.95, 1_000_000, 1.0), "longer than 1 s"),
    ],
)
def test_what_cannot_be_measured_so_often_is_told_and_ends_nothing(task: Task, asked: Interval, reason: str) -> None:
    found = measured(task, asked=asked)
    assert found.bounds == {}
    assert reason in found.reason


def test_outputs_that_are_not_one_row_per_sample_are_not_drawn() -> None:
    found = intervals(Accuracy(), torch.ones(100), torch.ones(100), 50, 42, ASKED)
    assert "100 rows for 50 samples" in found.reason
