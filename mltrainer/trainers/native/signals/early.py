"""Signals of the first steps: the size of their updates, and the classes of their batches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mltrainer.checkpointing.format import Tree
from mltrainer.records.run import TargetKind
from mltrainer.tasks.targets import class_numbers
from mltrainer.trainers.native.signals.observing import entropy

STEPS = (1, 2, 4, 8, 16, 32)  # steps whose updates are measured; an interval's last step shows the rate's effect by then
BATCHES = 32  # batches whose labels are counted


@dataclass
class Early:
    """The first steps; part of a checkpoint.

    Attributes:
        updates: The measured steps: number, and |update| / |weight| of the median layer and of the largest.
        labels: The entropy of each batch's classes, in nats.
        counts: The number of samples of each class in all of these batches.
        numbers: The mean and standard deviation of each batch's targets, if each sample has one number.
    """

    updates: list[list[float]] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    numbers: list[list[float]] = field(default_factory=list)

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        rows = {"updates": [list(row) for row in self.updates], "numbers": [list(row) for row in self.numbers]}
        return {**rows, "labels": list(self.labels), "counts": list(self.counts)}


class EarlySteps:
    """Collects the data of `Early` on the device, so that no step waits for it.

    Args:
        layers: The layers' weights.
        kind: The kind of the targets; None if unknown.
    """

    def __init__(self, layers: list[Tensor], kind: TargetKind | None) -> None:
        self.early = Early()
        self._layers, self._kind = layers, kind
        self._before: list[Tensor] = []
        self._ratios: list[tuple[int, Tensor]] = []
        self._targets: list[Tensor] = []

    def before(self, step: int, targets: Any) -> None:
        """Record a step's data before its update."""
        if step in STEPS and self._layers:
            self._before = [layer.detach().clone() for layer in self._layers]
        if step <= BATCHES and isinstance(targets, Tensor):
            self._targets.append(targets)

    def after(self, step: int) -> None:
        """Record the size of a step's update."""
        if self._before:
            self._ratios.append((step, update_ratios(self._before, [layer.detach() for layer in self._layers])))
            self._before = []

    def fetch(self) -> None:
        """Bring the collected data to the host."""
        for step, ratios in self._ratios:
            self.early.updates.append([step, float(ratios.median()), float(ratios.max())])
        for targets in self._targets:
            self._note(targets)
        self._ratios, self._targets = [], []

    def _note(self, targets: Tensor) -> None:
        early, labels = self.early, class_numbers(targets, self._kind)
        if labels is not None:
            counts = labels.bincount()
            early.labels.append(entropy(counts))
            early.counts = [sum(pair) for pair in itertools.zip_longest(early.counts, counts.tolist(), fillvalue=0)]
        elif targets.dim() and targets.numel() == len(targets) > 1 and not targets.is_complex():
            values = targets.flatten().double()
            early.numbers.append([float(values.mean()), float(values.std())])


def update_ratios(before: list[Tensor], after: list[Tensor]) -> Tensor:
    """Return |update| / |weight| of each layer (healthy near 1e-3: Karpathy, 2019)."""
    updates = torch.stack(torch._foreach_norm(torch._foreach_sub(after, before)))
    # A layer that begins as zeros has no norm to divide by.
    return updates / (torch.stack(torch._foreach_norm(before)) + 1e-12)
