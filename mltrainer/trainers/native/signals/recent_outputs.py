"""The outputs of the last steps: after a spike of the loss, the losses of its single samples are computed from them.

The passes give these outputs anyway: they are stored until the steps' losses are fetched, so that no step waits for a device or
computes anything for this.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer.errors import MltrainerError
from mltrainer.tasks.samples import generators_kept
from mltrainer.tasks.structures import length, mapped, one_of, tensors_in
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.ranks import Ranks

HELD = 1 << 20  # the most numbers that are stored, of outputs and targets
LARGEST = 5  # samples of a spike that are reported, those with the largest losses
APART = 0.01  # relative to the step's loss, more than 16-bit rounding: above it, the loss is not the mean of its samples' losses
Pass = tuple[Any, Any]  # outputs, without gradients, and targets of a micro-batch


class RecentOutputs:
    """Stores the outputs and targets of the steps that are not fetched yet.

    Args:
        is_on: Whether any are stored.
    """

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._steps: dict[int, tuple[np.ndarray, list[Pass]]] = {}
        self._held = 0

    def took(self, step: int, ids: np.ndarray, passes: list[Pass]) -> None:
        """Add a step.

        Args:
            step: The step's number.
            ids: The ids of its samples in this process.
            passes: The outputs and targets of its micro-batches in this process.
        """
        if not self._is_on:
            return
        size = 0
        for outputs, targets in passes:
            size += numbers(outputs) + numbers(targets)
        if self._held + size <= HELD:
            self._steps[step] = ids, passes
            self._held += size

    def forget(self) -> None:
        """Discard the steps, which are fetched."""
        self._steps, self._held = {}, 0

    def largest(self, step: int, loss: float, task: Task, ranks: Ranks) -> list[dict[str, Any]]:
        """Return the samples with the largest losses of a step, as they were in it, the largest first.

        [] if its outputs are not stored, or if its loss is not a mean over single samples.

        Args:
            step: The step's number.
            loss: The step's loss.
            task: The task, with its loss.
            ranks: The processes, each of which has some of the samples; all must call this.
        """
        ids, passes = self._steps.get(step, (np.zeros(0, dtype=np.int64), []))
        gathered = ranks.gather(list(zip(ids.tolist(), _losses(task, passes), strict=False)))
        found = [(sample, *rest) for part in gathered for sample, rest in part]
        items = sum(count for _, _, count in found)
        mean = sum(value * count for _, value, count in found) / items if items else math.nan
        if not abs(mean - loss) <= APART * abs(loss):
            return []
        ranked = sorted(found, key=lambda row: (-row[1] * row[2], row[0]))[:LARGEST]
        return [{"sample": sample, "loss": value, "share": value * count / (items * mean)} for sample, value, count in ranked]


def seen(outputs: Any, targets: Any) -> Pass | None:
    """Return the outputs of a micro-batch, without gradients, and its targets; None if they are too many to store."""
    if isinstance(outputs, Tensor) and outputs.dim() == 2:
        return outputs.detach(), targets
    # For instance logits of each token: they would take memory while the optimizer needs it.
    return None if numbers(outputs) > HELD else (mapped(Tensor.detach, outputs), targets)


def numbers(value: Any) -> int:
    """Return the count of numbers in the tensors of a structure."""
    # Most structures are one tensor, and each step calls this.
    return value.numel() if isinstance(value, Tensor) else sum(tensor.numel() for tensor in tensors_in(value))


@torch.no_grad()
def _losses(task: Task, passes: list[Pass]) -> list[tuple[float, float]]:
    """Return each sample's own loss and its number of items; [] if they cannot be computed."""
    losses, items = [], []
    try:
        with generators_kept():
            for outputs, targets in passes:
                count = length(targets)
                for place in range(count):
                    one = one_of(targets, place, count)
                    losses.append(task.loss(full(one_of(outputs, place, count)), one).detach().double().reshape(()))
                    items.append(torch.as_tensor(task.loss_items(one), dtype=torch.float64, device=losses[-1].device))
    except MltrainerError:
        raise
    except Exception:  # from a user's loss that needs whole batches: training goes on without this
        return []
    return list(zip(torch.stack(losses).tolist(), torch.stack(items).tolist(), strict=True)) if losses else []
