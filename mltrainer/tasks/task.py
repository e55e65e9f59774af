"""The class from which a user's own task derives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.utils.data import Dataset

Data = Dataset[Any] | tuple[Tensor, ...]


class Task:
    """What is trained on what: samples, a model, a loss and metrics.

    Write `samples` (mltrainer splits them) or `dataset` (you do), `model`, `loss` and `metrics`. The arguments of
    `__init__` are `task.options` of `mltrainer.yaml`. Samples are tensors in memory, or a map-style data set
    whose draws come from the global generators of Python, NumPy and torch, which are seeded for each sample.

    Examples:
        >>> class Doubling(Task):
        ...     def samples(self):
        ...         x = torch.arange(100.0)[:, None]
        ...         return x, 2 * x
        ...     def model(self):
        ...         return nn.Linear(1, 1)
        ...     def loss(self, outputs, targets):
        ...         return nn.functional.mse_loss(outputs, targets)
        ...     def metrics(self, outputs, targets):
        ...         return {"mae": (outputs - targets).abs().mean().item()}
    """

    def samples(self) -> Data:
        """Return all samples: tensors with equal first dimension, targets last, or a map-style data set."""
        raise NotImplementedError("write samples(self) or dataset(self, split)")

    def dataset(self, split: str) -> Data | None:
        """Return the samples of a split, if the data comes with its own.

        Args:
            split: "train", "validation" or "test".

        Returns:
            As `samples`; None for a split that there is not (only "test" may be missing).
        """
        raise NotImplementedError("without this method, mltrainer splits samples()")

    def prepare(self, train: Data) -> None:
        """Fit what is fitted to data, such as a mean, on the training split; called once, before `model`."""

    def model(self) -> nn.Module:
        """Return a new model; torch's generator is seeded before the call."""
        raise NotImplementedError("write model(self)")

    def forward(self, model: nn.Module, batch: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Return the model's outputs and the targets of a batch; the last part of a batch is the targets."""
        return model(*batch[:-1]), batch[-1]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss, a scalar: over the samples, or over what `loss_items` counts."""
        raise NotImplementedError("write loss(self, outputs, targets)")

    def loss_items(self, targets: Tensor) -> int | Tensor:
        """Return how many items the loss of a batch is the mean of: the samples, unless you count something else.

        A language model whose loss is the mean over tokens returns the number of those that count, such as
        `(targets != -100).sum()`: batches of unequal numbers of tokens then weigh what they should.
        """
        return len(targets)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return the metrics by name over a whole split; both tensors are on the CPU."""
        return {}

    def inference(self) -> dict[str, Any]:
        """Return what a user of the trained model must know, as plain data: columns, classes, categories."""
        return {}

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any] | None:
        """Return a confusion matrix or residuals for the reports, or None."""
        return None
