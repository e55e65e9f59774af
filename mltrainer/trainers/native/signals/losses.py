"""Losses that are outliers, step by step: a spike is reported with the usual loss before it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Any

from mltrainer.checkpointing.format import Tree

WINDOW = 128  # values before one, which it is compared with: as in OLMo's optimizer that skips steps
SIGMAS = 6.0  # standard deviations above the window's mean; also as in OLMo
TIMES = 3.0  # times the window's largest value, in addition: heavy tails are usual
LEAST_SAMPLES = 32  # samples of one value: the losses of smaller batches are averaged first
MOST = 20  # spikes that are kept


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
