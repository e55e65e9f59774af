"""The running statistics of batch norms in a step of several shards: each shard's part is captured, then all are replayed.

The shards of a step are spread over processes. A batch norm's update is linear in its statistics: starting from zeros, it gives
the shard's own part. These summands are few numbers; with all shards' summands the updates do not depend on the process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


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

    @contextmanager
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
