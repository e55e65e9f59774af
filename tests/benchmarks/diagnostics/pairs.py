"""A faulty case beside its correct twin, and tasks over any data that a user's own class may give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from mltrainer.tasks import metrics
from mltrainer.tasks.task import Data
from mltrainer.tasks.updating import Length, Updates
from tests.benchmarks.diagnostics.case import Case, faulty, healthy
from tests.benchmarks.diagnostics.tasks import Given, Loss, Make

Config = Mapping[str, Any]
Maker = Callable[[], Given]


@dataclass(frozen=True)
class Pair:
    """A case with a fault and the same training without it, by which the fault's harm is measured."""

    case: Case
    twin: Case


def pair(
    id: str,
    what: str,
    labels: tuple[str, str],
    task: Maker,
    config: Config,
    *,
    twin: Maker | None = None,
    cured: Config | None = None,
) -> Pair:
    """Return a faulty case with its twin.

    Args:
        id: The case's; the twin's is the same with T in front.
        what: What is wrong.
        labels: Those that must be found, and those that may, separated by spaces.
        task: Makes the faulty task.
        config: Of the faulty training.
        twin: Makes the correct task; None where the fault is in the config.
        cured: The correct config; None where the fault is in the task.
    """
    must, may = labels
    twins = healthy(f"T{id}", f"{what}: without the fault", twin or task, cured or config)
    return Pair(faulty(id, what, must, may, task, config), twins)


def waiting(case: Case) -> Case:
    """Return a case whose samples are drawn where they are read; that its small model waits for them is true."""
    return replace(case, may=case.may | {"PIPELINE"})


@dataclass(frozen=True)
class Splits:
    """The samples of both splits, in any form that a task may give."""

    train: Data
    validation: Data


class Own(Given):
    """Data in memory, read lazily, or as a stream, with a model and a loss.

    Args:
        splits: Gives the data.
        model: Makes the model.
        loss: Of outputs and targets.
        updates: Makes an optimizer of the task's own, where the config says `own`.
    """

    def __init__(
        self,
        splits: Callable[[], Splits],
        model: Make,
        loss: Loss,
        updates: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
    ) -> None:
        self.splits, self.make, self.measure, self.optimizer = splits(), model, loss, updates

    def dataset(self, split: str) -> Data | None:
        return getattr(self.splits, split, None)

    def updates(self, model: nn.Module, length: Length) -> Updates:
        return super().updates(model, length) if self.optimizer is None else Updates(self.optimizer(model))


class Labelled(Own):
    """Tells classes apart by a logit for each; reports accuracy alone, as many a class of one's own does."""

    targets = "classes"
    metric = "accuracy"

    def __init__(
        self, splits: Callable[[], Splits], model: Make, loss: Loss = nn.functional.cross_entropy, **others: Any
    ) -> None:
        super().__init__(splits, model, loss, **others)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"accuracy": float((outputs.argmax(1) == targets).double().mean())}


class Reported(Labelled):
    """Tells classes apart, and reports their confusion too."""

    classes = 4

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return metrics.classification(outputs, targets)

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        return metrics.classification_evaluation(outputs, targets, [str(number) for number in range(self.classes)])


class Measured(Own):
    """Predicts a quantity."""

    targets = "values"
    metric = "r2"

    def __init__(self, splits: Callable[[], Splits], model: Make, loss: Loss = nn.functional.mse_loss, **others: Any) -> None:
        super().__init__(splits, model, loss, **others)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return metrics.regression(outputs.flatten(), targets.flatten())


def biases_alone(model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer that was handed the biases and nothing else."""
    return torch.optim.Adam([one for name, one in model.named_parameters() if name.endswith("bias")], lr=1e-3)


def all_weights(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-3)
