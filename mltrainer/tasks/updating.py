"""The optimizer and schedulers that a task makes itself, and the length of the run that it makes them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True)
class Length:
    """How long a run is.

    Attributes:
        steps: Of the whole run.
        steps_per_epoch: Of one epoch.
    """

    steps: int
    steps_per_epoch: int

    @property
    def epochs(self) -> int:
        """Passes over the training samples."""
        return self.steps // self.steps_per_epoch


@dataclass(frozen=True)
class Scheduler:
    """A scheduler of PyTorch's form, over the optimizer that it comes with.

    Attributes:
        it: Has `step()`, or with `monitor` `step(metric)`.
        every: After what it takes a step; one with `monitor` takes it after an evaluation.
        frequency: After every so many of them.
        monitor: The metric that it goes by, such as `loss`; those of the training split begin with `train_`.
    """

    it: Any
    every: Literal["step", "epoch"] = "epoch"
    frequency: int = 1
    monitor: str | None = None


@dataclass(frozen=True)
class Updates:
    """An optimizer that a task makes, and what changes its learning rates.

    Attributes:
        optimizer: Over the model's trainable parameters.
        schedulers: Made over this very optimizer.
    """

    optimizer: torch.optim.Optimizer
    schedulers: Sequence[Scheduler] = ()
