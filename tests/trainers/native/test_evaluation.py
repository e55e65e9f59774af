"""An evaluation holds the outputs that somebody reads, and no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.evaluation import evaluate, needs_outputs
from tests.refusals import refused

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


def test_outputs_that_no_method_of_the_task_reads_are_not_held(samples):
    found = evaluate(Plain(), nn.Linear(1, 1), CONFIG, samples, "validation")
    assert (len(found.outputs), len(found.targets), found.held_bytes) == (0, 0, 0)
    assert found.metrics["loss"] > 0


def test_the_loss_is_the_same_whether_outputs_are_held_or_not(samples):
    model = nn.Linear(1, 1)
    assert (
        evaluate(Plain(), model, CONFIG, samples, "validation").metrics["loss"]
        == evaluate(Measuring(), model, CONFIG, samples, "validation").metrics["loss"]
    )


@pytest.mark.parametrize(("task", "expected"), [(Plain(), False), (Measuring(), True)])
def test_a_task_that_writes_metrics_reads_outputs(task, expected):
    assert needs_outputs(task) is expected


class Streaming(Measuring):
    """Adds up what `Measuring` takes of all outputs."""

    def accumulate(self, state: Any, outputs: Tensor, targets: Tensor) -> Any:
        total, count = state or (0.0, 0)
        return total + float((outputs - targets).abs().sum()), count + len(targets)

    def compute(self, state: Any) -> dict[str, float]:
        return {"mae": state[0] / state[1]}


def test_accumulated_metrics_are_those_of_all_outputs_and_none_are_held(samples):
    model = nn.Linear(1, 1)
    found = evaluate(Streaming(), model, CONFIG, samples, "validation")
    assert found.held_bytes == 0
    assert found.metrics == pytest.approx(evaluate(Measuring(), model, CONFIG, samples, "validation").metrics, rel=1e-5)


def test_what_compute_gave_is_told_by_its_name(samples):
    task = Streaming()
    task.compute = lambda state: {"mae": "small"}  # type: ignore[method-assign, assignment, return-value, dict-item]
    with refused("compute, 'mae': expected a number, found 'small'", hint="compute(self, state)"):
        evaluate(task, nn.Linear(1, 1), CONFIG, samples, "validation")


class Structured(Measuring):
    """Gives more than one output, and judges by one of them."""

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        found = model(batch[0])
        return {"value": found, "square": found * found}, {"value": batch[1]}

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return super().loss(outputs["value"], targets["value"])

    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        return {**super().metrics(outputs["value"], targets["value"]), "rows": len(outputs["square"])}


def test_structured_outputs_reach_metrics_whole(samples):
    model = nn.Linear(1, 1)
    found = evaluate(Structured(), model, CONFIG, samples, "validation").metrics
    assert found == {**evaluate(Measuring(), model, CONFIG, samples, "validation").metrics, "rows": 600.0}


class Ragged(Measuring):
    """Gives outputs of another width in its second batch."""

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        found = model(batch[0])
        return (found if bool(batch[0].min() == 0) else found.expand(-1, 2)), batch[1]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.mean()


def test_outputs_that_cannot_be_held_as_one_are_told_with_the_way_out(samples):
    with refused("differ in shape", hint="accumulate"):
        evaluate(Ragged(), nn.Linear(1, 1), CONFIG, samples, "validation")
