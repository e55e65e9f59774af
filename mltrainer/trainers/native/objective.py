"""The objective of a step: the loss of a micro-batch and the terms that strategies add, under its own random draws."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.strategies import Strategies
from mltrainer.tasks.strategy import MicroBatch
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import Batch
from mltrainer.trainers.native.optimization.precision import autocast, choose, full
from mltrainer.trainers.native.running_statistics import RunningStatistics
from mltrainer.trainers.native.shards import shard_key


def summed(mean: Tensor, items: float | Tensor) -> Tensor:
    """Return the sum behind a mean; over no items it is 0, though their mean is not a number."""
    total = mean * items
    return torch.where(items > 0, total, 0.0) if isinstance(items, Tensor) else total


@contextlib.contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore a model's present buffers after a block; a buffer that is None now becomes None again."""
    owned = [(owner._buffers, name, b) for owner in model.modules() for name, b in owner._buffers.items()]
    before = [None if buffer is None else buffer.clone() for _, _, buffer in owned]
    yield
    for (buffers, name, buffer), kept in zip(owned, before, strict=True):
        buffers[name] = None if buffer is None or kept is None else buffer.copy_(kept)


class Objective:
    """The loss of a step's micro-batches.

    Args:
        task: The task, with its forward pass and loss.
        model: The model, on its device.
        config: The config, with precision, batch size and seed.
        strategies: The strategies; None for no strategies.

    Attributes:
        scaler: The loss scale.
        statistics: The running statistics of the model's batch norms.
        saw: A function called with each pass's outputs and targets.
        types: The types of a micro-batch's loss, with its terms, and of its weight; None before the first one.
    """

    def __init__(self, task: Task, model: nn.Module, config: TrainingConfig, strategies: Strategies | None = None) -> None:
        self.task, self.model, self.config = task, model, config
        self.strategies = strategies or Strategies()
        self.scaler = torch.amp.GradScaler(config.device, enabled=choose(config.precision, config.device).chosen == "fp16")
        self.statistics = RunningStatistics(model)
        self.autocast = autocast(config)
        self.lowers = self.autocast._enabled
        self.saw: Callable[[Any, Any], None] = lambda _outputs, _targets: None
        self.types: tuple[torch.dtype, torch.dtype] | None = None

    def seed(self, number: int, shard: int) -> None:
        """Seed the generators for a step's micro-batch."""
        address = shard_key(self.config.seed, number, shard)
        seeds.seed_everything(address)
        self.strategies.address = seeds.key(address, "strategies")

    def backward(self, batch: Batch, ids: np.ndarray) -> Tensor:
        """Run the forward and backward pass of a step that is one micro-batch; return its mean loss, with its terms."""
        loss, told, _ = self.loss(batch, ids)
        self.scaler.scale(loss).backward()
        return told

    def no_loss(self) -> list[Tensor]:
        """Return loss and weight of a process that computes none: -0.0, because x + -0.0 has the bits of x, even if x is -0.0."""
        shapes = (self.strategies.shape, ())
        typed = zip(shapes, self.types, strict=True) if self.types is not None else ()
        return [torch.full(shape, -0.0, dtype=dtype, device=self.config.device) for shape, dtype in typed]

    def backward_share(self, micro: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor]:
        """Run a micro-batch's forward and backward pass; return its loss times its share of the items, and that share."""
        objective, total, weight = self.share(micro, ids, is_noted)
        self.scaler.scale(objective).backward()
        return total, weight

    def share(self, micro: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Run the forward pass of a micro-batch.

        Returns:
            The loss times its share of the items, to differentiate; the same to add, with its terms; and that share.
        """
        loss, told, items = self.loss(micro, ids, is_noted)
        share = items / self.config.batch_size  # near 1, for the range of fp16
        weight = share if isinstance(share, Tensor) else torch.full((), share, device=loss.device)
        total = summed(told, share)
        self.types = total.dtype, weight.dtype
        return loss * share, total, weight

    def loss(self, batch: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor, int | Tensor]:
        """Return the mean loss of a batch, the same detached with its terms, and its number of items."""
        with self.autocast if self.lowers or torch.is_autocast_enabled(self.config.device) else contextlib.nullcontext():
            untouched = self.strategies.untouched(batch)
            with self.strategies.watching:
                outputs, targets = self.task.forward(self.model, batch)
            if is_noted:
                self.saw(outputs, targets)
            kept = self.strategies.kept(full(outputs))
            loss = self.task.loss(full(outputs), targets)
            joined, told = self.strategies.join(loss, MicroBatch(untouched, kept, targets, ids))
            return joined, told, self.task.loss_items(targets)
