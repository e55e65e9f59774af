"""A step's shards: the addresses of their random draws, and the fixed order in which their gradients are added.

A step with `accumulate: L` is L logical shards of one batch. A shard's draws and its gradient's place in the sum are
functions of (seed, step, shard) alone, not of the process that computes it, nor of other shards before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mltrainer.reproducibility import seeds


def shard_key(seed: int, step: int, shard: int) -> int:
    """Return the key of a shard's draws in a step; the first shard has the step's own key, like a step that is not split."""
    return seeds.key(seed, "step", step, shard) if shard else seeds.key(seed, "step", step)


def update_key(seed: int, step: int) -> int:
    """Return the key of the draws after a step's shards, such as noise on their sum."""
    return seeds.key(seed, "update", step)


class TreeSum:
    """Adds up lists of tensors in one fixed binary tree, each as it arrives.

    The tree over n lists is the tree over the largest power of two below n, plus the tree over the rest. Floating-point
    sums depend on their order; here two processes that each add up one half of a power of two, and then add the halves,
    get the bits of one process that adds up all. Kept are the subtrees that are not joined yet, at most log2(n) + 1.
    """

    def __init__(self) -> None:
        self._subtrees: list[tuple[int, list[Tensor]]] = []  # the number of lists in each sum, falling, and the sum

    def add(self, tensors: list[Tensor]) -> None:
        """Add the next list, whose tensors belong to this sum from now on."""
        size = 1
        while self._subtrees and self._subtrees[-1][0] == size:
            tensors = self._onto_last(tensors)
            size *= 2
        self._subtrees.append((size, tensors))

    def total(self) -> list[Tensor]:
        """Return the sum of all lists, at least one; nothing can be added afterwards."""
        _, tensors = self._subtrees.pop()
        while self._subtrees:
            tensors = self._onto_last(tensors)
        return tensors

    def _onto_last(self, tensors: list[Tensor]) -> list[Tensor]:
        _, earlier = self._subtrees.pop()
        if tensors:  # a stage may have no parameters
            torch._foreach_add_(earlier, tensors)
        return earlier
