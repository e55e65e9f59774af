"""The objective of a step: the loss of a micro-batch and the terms that strategies add, under its own random draws."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.tasks.strategies import Strategies
from mltrainer.tasks.strategy import MicroBatch
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.data.addresses import Batch
from mltrainer.trainers.native.optimization.precision import autocast, choose, full
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
        begins: A function called with each micro-batch before its pass.
        ended: A function called with a pass's loss, as it is added, once its gradients are in the parameters.
        batch_size: The number of samples of a full micro-batch.
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
        self.begins: Callable[[Batch], None] = lambda _batch: None
        self.ended: Callable[[Tensor], None] = lambda _loss: None
        self.batch_size = config.batch_size
        self.types: tuple[torch.dtype, torch.dtype] | None = None

    def seed(self, number: int, shard: int) -> None:
        """Seed the generators for a step's micro-batch."""
        address = shard_key(self.config.seed, number, shard)
        seeds.seed_everything(address)
        self.strategies.address = seeds.key(address, "strategies")

    def backward(self, batch: Batch, ids: np.ndarray) -> Tensor:
        """Run the forward and backward pass of a step that is one micro-batch; return its mean loss, with its terms."""
        self.begins(batch)
        loss, reported, _ = self.loss(batch, ids)
        self.scaler.scale(loss).backward()
        self.ended(reported)
        return reported

    def no_loss(self) -> list[Tensor]:
        """Return loss and weight of a process that computes none: -0.0, because x + -0.0 has the bits of x, even if x is -0.0."""
        shapes = (self.strategies.shape, ())
        typed = zip(shapes, self.types, strict=True) if self.types is not None else ()
        return [torch.full(shape, -0.0, dtype=dtype, device=self.config.device) for shape, dtype in typed]

    def backward_share(self, micro: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor]:
        """Run a micro-batch's forward and backward pass; return its loss times its share of the items, and that share."""
        self.begins(micro)
        objective, total, weight = self.share(micro, ids, is_noted)
        self.scaler.scale(objective).backward()
        self.ended(total)
        return total, weight

    def share(self, micro: Batch, ids: np.ndarray, is_noted: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Run the forward pass of a micro-batch.

        Returns:
            The loss times its share of the items, to differentiate; the same to add, with its terms; and that share.
        """
        loss, reported, items = self.loss(micro, ids, is_noted)
        share = items / self.batch_size  # near 1, for the range of fp16
        weight = share if isinstance(share, Tensor) else torch.full((), share, device=loss.device)
        total = summed(reported, share)
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
            joined, reported = self.strategies.join(loss, MicroBatch(untouched, kept, targets, ids))
            return joined, reported, self.task.loss_items(targets)


# --- the running statistics of batch norms ---------------------------------------------------------


class RunningStatistics:
    """The running means and variances of a model's batch norms.

    A norm whose class has its own forward pass is left alone: only torch's own is known to be linear. While a shard
    is computed, the statistics are zeros: a model that reads them in its training forward pass reads zeros.

    Args:
        model: The model, on its device.
        model: The model, on its device.
    """

    def __init__(self, model: nn.Module) -> None:
        self._norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and _is_torchs(module)]

    def rows(self, shards: int) -> list[Tensor]:
        """Return tensors for the summands of a step's shards: [shards, 2 C + 1] for each norm, of -0.0, which changes no sum."""
        means = [_statistics(norm)[0] for norm in self._norms]
        return [torch.full((shards, 2 * len(mean) + 1), -0.0, dtype=mean.dtype, device=mean.device) for mean in means]

    @contextlib.contextmanager
    def captured(self, rows: list[Tensor], shard: int, among: Collection[nn.Module] | None = None) -> Iterator[None]:
        """Write a shard's part of the statistics, from its two passes, into its rows; the statistics do not change.

        A row has the means, the variances and their number of updates: 0 for a norm in evaluation mode, several if
        a model calls the norm more than once, or recomputes its activations in the backward pass.

        Args:
            rows: The tensors from `rows`.
            shard: The shard's number; from the number of shards on nothing is kept.
            among: The modules that this process computes; None for all.
        """
        each = zip(self._norms, rows, strict=True)
        training = [(norm, row) for norm, row in each if norm.training and (among is None or norm in among)]
        kept = [_statistics(norm) for norm, _ in training]
        for norm, _ in training:
            _lend(norm, [torch.zeros_like(tensor) for tensor in _statistics(norm)])
        try:
            yield
        finally:
            for (norm, row), own in zip(training, kept, strict=True):
                mean, variance, updates = _statistics(norm)
                row[shard : shard + 1] = torch.cat([mean, variance, updates.to(mean.dtype).view(1)])
                # The objects are swapped, not their content: autograd refuses a tensor that changed since the forward pass.
                _lend(norm, own)

    def replay(self, rows: list[Tensor]) -> None:
        """Update the statistics with all shards' summands, in the order of shards."""
        for norm, summands in zip(self._norms, rows, strict=True):
            for row in summands:
                _update(norm, row)


def _is_torchs(norm: _BatchNorm) -> bool:
    """Return True if a norm has statistics and torch's own forward pass."""
    return type(norm).forward is _BatchNorm.forward and all(isinstance(tensor, Tensor) for tensor in _statistics(norm))


def _statistics(norm: _BatchNorm) -> list[Tensor]:
    return [norm.running_mean, norm.running_var, norm.num_batches_tracked]  # type: ignore[list-item]  # None where it has none


def _lend(norm: _BatchNorm, statistics: list[Tensor]) -> None:
    norm.running_mean, norm.running_var, norm.num_batches_tracked = statistics


def _update(norm: _BatchNorm, row: Tensor) -> None:
    """Apply one shard's updates: each keeps 1 - momentum of the old value; without a momentum, the mean of all updates."""
    mean, variance, tracked = _statistics(norm)
    updates = row[-1]
    if norm.momentum is None:
        together = (tracked + updates).clamp(min=1)
        stays, share = torch.where(updates > 0, tracked / together, 1.0), updates / together
    else:
        stays, share = torch.pow(1 - norm.momentum, updates), torch.ones_like(updates)
    for statistic, summand in zip((mean, variance), row[:-1].chunk(2), strict=True):
        statistic.mul_(stays).add_(summand * share)
    tracked.add_(updates.to(tracked.dtype))
