"""Signals of the steps: the first updates and batches, and losses that are outliers, with the usual loss before each."""

from __future__ import annotations

import itertools
import math
import statistics
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
WINDOW = 128  # values before one, which it is compared with: as in OLMo's optimizer that skips steps
SIGMAS = 6.0  # standard deviations above the window's mean; also as in OLMo
TIMES = 3.0  # times the window's largest value, in addition: heavy tails are usual
LEAST_SAMPLES = 32  # samples of one value: the losses of smaller batches are averaged first
MOST = 20  # spikes that are kept


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
        # None of a step before, which was skipped.
        self._before = [layer.detach().clone() for layer in self._layers] if step in STEPS else []
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


@dataclass
class Losses:
    """The last losses and the spikes; part of a checkpoint.

    Attributes:
        window: The last values, in order.
        held: The samples and the summed loss of batches that do not make a value yet.
        largest: The step and the loss of the largest loss among them; empty before the first.
        first: The first value.
        spikes: The spikes: step, loss, the usual loss and the largest before; `samples` if their origin is known.
    """

    window: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=lambda: [0.0, 0.0])
    first: float | None = None
    spikes: list[dict[str, Any]] = field(default_factory=list)
    largest: list[float] = field(default_factory=list)

    def tree(self) -> Tree:
        """Return the state for a checkpoint."""
        return {
            "window": list(self.window),
            "held": list(self.held),
            "first": self.first,
            "spikes": [dict(s) for s in self.spikes],
            "largest": list(self.largest),
        }

    def extend(self, first_step: int, losses: list[float], sizes: list[int], batch_size: int) -> None:
        """Add the next steps; batches that are not full are too noisy and left out.

        Args:
            first_step: The number of the first step.
            losses: The loss of each step.
            sizes: The number of samples of each step.
            batch_size: The number of samples of a full step.
        """
        for place, (loss, size) in enumerate(zip(losses, sizes, strict=True)):
            if size < batch_size or not math.isfinite(loss):
                continue
            self.held = [self.held[0] + size, self.held[1] + size * loss]
            if not self.largest or loss > self.largest[1]:
                self.largest = [first_step + place, loss]
            if self.held[0] >= LEAST_SAMPLES:
                self._take(int(self.largest[0]), self.held[1] / self.held[0])
                self.held, self.largest = [0.0, 0.0], []

    def _take(self, step: int, loss: float) -> None:
        self.first = loss if self.first is None else self.first
        # Judged before it joins the window, whose largest value it could be.
        if len(self.spikes) < MOST and self._stands_out(loss):
            usual, largest = statistics.median(self.window), max(self.window)
            self.spikes.append({"step": step, "loss": loss, "usual": usual, "largest_before": largest})
        self.window = [*self.window[-WINDOW + 1 :], loss]

    def _stands_out(self, loss: float) -> bool:
        """Return True if a value is far above those before it, and not small compared with the first."""
        if len(self.window) < 8 or self.first is None or loss <= TIMES * max(self.window) or loss <= self.first / 2:
            return False
        return loss > statistics.fmean(self.window) + SIGMAS * statistics.stdev(self.window)
