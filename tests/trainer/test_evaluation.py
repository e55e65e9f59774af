"""An evaluation holds the outputs that somebody reads, and no others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.task import Task
from mltrainer.trainer.evaluation import measure, outputs, writes

CONFIG = TrainingConfig.model_validate({"name": "own", "task": {"use": "a:B"}, "metric": {"name": "loss", "mode": "min"}})


class Plain(Task):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)


class Measuring(Plain):
    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"mae": float((outputs - targets).abs().mean())}


@pytest.fixture
def samples() -> Samples:
    x = torch.arange(600.0)[:, None] / 600
    return Samples(torch.arange(600).numpy(), (x, 2 * x))


def test_outputs_that_no_method_of_the_task_reads_are_not_held(samples: Samples) -> None:
    held, targets, loss = outputs(Plain(), nn.Linear(1, 1), CONFIG, samples, "validation", keep=False)
    assert (len(held), len(targets)) == (0, 0)
    assert loss > 0


def test_the_loss_is_the_same_whether_outputs_are_held_or_not(samples: Samples) -> None:
    model = nn.Linear(1, 1)
    assert (
        measure(Plain(), model, CONFIG, samples, "validation")["loss"]
        == measure(Measuring(), model, CONFIG, samples, "validation")["loss"]
    )


@pytest.mark.parametrize(("task", "expected"), [(Plain(), False), (Measuring(), True)])
def test_a_task_that_writes_metrics_reads_outputs(task: Task, expected: bool) -> None:
    assert writes(task, "metrics") is expected
