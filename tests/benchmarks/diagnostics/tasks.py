"""The cases as a user's own tasks."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.tasks import metrics
from mltrainer.tasks.task import Data, Task
from tests.benchmarks.diagnostics.data import Ordered, Parts, Slow

Loss = Callable[[Tensor, Tensor], Tensor]
Make = Callable[[], nn.Module]


class Given(Task):
    """Data, model and loss as they are given.

    Attributes:
        metric: The metric that chooses the best weights.
    """

    metric: str

    def __init__(self, data: Callable[[], Parts], model: Make, loss: Loss) -> None:
        self.parts, self.make, self.measure = data(), model, loss

    def dataset(self, split: str) -> Data | None:
        return getattr(self.parts, split, None)

    def model(self) -> nn.Module:
        return self.make()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.measure(outputs, targets)


class Classes(Given):
    """Tells classes apart by a logit for each."""

    targets = "classes"
    metric = "accuracy"

    def __init__(self, data: Callable[[], Parts], model: Make, loss: Loss = functional.cross_entropy) -> None:
        super().__init__(data, model, loss)
        self.names = [str(number) for number in range(int(self.parts.train[1].max()) + 1)]

    def logits(self, outputs: Tensor) -> Tensor:
        return outputs

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return metrics.classification(self.logits(outputs), targets)

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        return metrics.classification_evaluation(self.logits(outputs), targets, self.names)


class Two(Classes):
    """Tells two classes apart by one logit."""

    def __init__(self, data: Callable[[], Parts], model: Make) -> None:
        super().__init__(data, model, binary_loss)

    def logits(self, outputs: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(outputs), outputs], 1)


class TwoByProbability(Two):
    """Tells two classes apart by one probability."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy(outputs, targets.float()[:, None])

    def logits(self, outputs: Tensor) -> Tensor:
        return super().logits(torch.logit(outputs, eps=1e-6))


class Values(Given):
    """Predicts quantities."""

    targets = "values"
    metric = "r2"

    def __init__(self, data: Callable[[], Parts], model: Make, loss: Loss = functional.mse_loss) -> None:
        super().__init__(data, model, loss)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return metrics.regression(outputs.flatten(), targets.flatten())

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        return metrics.regression_evaluation(outputs.flatten(), targets.flatten())


# --- losses ---------------------------------------------------------------------------------------


def binary_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(outputs, targets.float()[:, None])


def logistic_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of probabilities, whatever the targets are."""
    return functional.binary_cross_entropy_with_logits(outputs, targets.view_as(outputs))


def broadcast_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return squared errors of every output with every target, where targets lack the outputs' last dimension."""
    return (outputs - targets).square().mean()


def likelihood_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the logarithm of probabilities, which may be 0."""
    return -outputs.gather(1, targets[:, None]).log().mean()


def weighted_loss(*weights: float) -> Loss:
    return functools.partial(functional.cross_entropy, weight=torch.tensor(weights))


squares_summed: Loss = functools.partial(functional.mse_loss, reduction="sum")
smoothed_loss: Loss = functools.partial(functional.cross_entropy, label_smoothing=0.1)


# --- what may be wrong with them ------------------------------------------------------------------


class InOrder(Classes):
    """Trains on a stream, which nothing shuffles."""

    def dataset(self, split: str) -> Any:
        return Ordered(*self.parts.train) if split == "train" else super().dataset(split)


class Waiting(Classes):
    """Reads training rows that take their time.

    Args:
        seconds: Of a row.
    """

    seconds = 0.01 / 64

    def dataset(self, split: str) -> Any:
        slowly = functools.partial(time.sleep, self.seconds)
        return Slow(*self.parts.train, slowly) if split == "train" else super().dataset(split)


class OneBadBatch(Classes):
    """Trains on one batch that is a hundred times too large.

    Args:
        bad_step: Its step.
    """

    def __init__(self, data: Callable[[], Parts], model: Make, bad_step: int) -> None:
        super().__init__(data, model)
        self.bad_step, self.taken = bad_step, 0

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        x, y = batch
        if model.training and torch.is_grad_enabled():
            self.taken += 1
            x = 100 * x if self.taken == self.bad_step else x
        return model(x), y
