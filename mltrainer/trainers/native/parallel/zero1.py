"""Processes that share the optimizer's state: each computes with the whole model, and updates its rows of large parameters.

Source: Rajbhandari et al., 2020, arXiv 1910.02054.
"""

from __future__ import annotations

from torch import Tensor

from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.parallel.parallelism import Parallelism, gradients_of
from mltrainer.trainers.native.parallel.partition import Partition, cuts


class Zero1(Parallelism):
    """Parallelism in which each row's gradients are summed in the process that updates it; updates are followed by a gather."""

    def _partition(self) -> Partition:
        return Partition(self.ranks, self.trained, cuts(self.trained, self.ranks.size), in_place=True)

    def _alone(self, objective: Objective, number: int, step: Step) -> Tensor:
        loss = super()._alone(objective, number, step)
        gradients = dict(zip(self.trained, gradients_of(self.trained.values()), strict=True))
        rows = self.partition.rows_of({name: gradients[name] for name in self.partition.cut})
        self._hand_over(self.partition.in_order(rows, gradients))
        return loss

    def _summed(self, gradients: list[Tensor], others: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        named, small = dict(zip(self.trained, gradients, strict=True)), self.partition.small
        summed = self.ranks.tree_sum([*(named[name] for name in small), *others])
        rows = self.partition.summed_rows({name: named[name] for name in self.partition.cut})
        return self.partition.in_order(rows, dict(zip(small, summed, strict=False))), summed[len(small) :]
