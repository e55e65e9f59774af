"""A step's shards: where each draws, and the one order in which their gradients are added.

A step with `accumulate: L` is L logical shards of one batch. What a shard draws and where its gradient stands in the sum are
functions of (seed, step, shard) alone, not of which process computes it, nor of what other shards did before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mltrainer.reproducibility import seeds


def shard_key(seed: int, step: int, shard: int) -> int:
    """Return the key of what a shard of a step draws; the first one's is the step's own, as of a step that is not split."""
    return seeds.key(seed, "step", step, shard) if shard else seeds.key(seed, "step", step)


def update_key(seed: int, step: int) -> int:
    """Return the key of what a step of several shards draws after them, such as noise on their sum."""
    return seeds.key(seed, "update", step)


class TreeSum:
    """Adds up lists of tensors in one fixed binary tree, each as it comes.

    The tree over n lists is the tree over the largest power of two below n, plus the tree over the rest. Floating-point
    sums depend on their order; here two processes that each add up one half of a power of two, and then add the halves,
    get the bits of one process that adds up all. Held are the subtrees that are not joined yet, at most log2(n) + 1.
    """

    def __init__(self) -> None:
        self._subtrees: list[tuple[int, list[Tensor]]] = []  # how many lists each is the sum of, falling

    def add(self, tensors: list[Tensor]) -> None:
        """Take in the next list, whose tensors are this sum's from now on."""
        size = 1
        while self._subtrees and self._subtrees[-1][0] == size:
            tensors = self._onto_last(tensors)
            size *= 2
        self._subtrees.append((size, tensors))

    def total(self) -> list[Tensor]:
        """Return the sum of all that came, at least one; nothing can be added afterwards."""
        _, tensors = self._subtrees.pop()
        while self._subtrees:
            tensors = self._onto_last(tensors)
        return tensors

    def _onto_last(self, tensors: list[Tensor]) -> list[Tensor]:
        _, earlier = self._subtrees.pop()
        if tensors:  # a stage may have no parameters
            torch._foreach_add_(earlier, tensors)
        return earlier
