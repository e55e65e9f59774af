"""The optimizer and schedulers that a task makes itself, and the length of the run that it makes them for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch


@dataclass(frozen=True)
class Length:
    """The length of a run.

    Attributes:
        steps: Optimizer steps of the whole run.
        steps_per_epoch: Optimizer steps of one epoch.
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
        it: The scheduler, with `step()`, or with `monitor` `step(metric)`.
        every: The unit after which it takes a step; one with `monitor` takes it after an evaluation.
        frequency: The number of these units between its steps.
        monitor: The metric that it follows, such as `loss`; those of the training split begin with `train_`.
    """

    it: Any
    every: Literal["step", "epoch"] = "epoch"
    frequency: int = 1
    monitor: str | None = None


@dataclass(frozen=True)
class Updates:
    """An optimizer that a task makes, and the schedulers of its learning rates.

    Attributes:
        optimizer: The optimizer, over the model's trainable parameters.
        schedulers: The schedulers, made over this very optimizer.
    """

    optimizer: torch.optim.Optimizer
    schedulers: Sequence[Scheduler] = ()
