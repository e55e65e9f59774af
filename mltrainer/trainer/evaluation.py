"""A model measured over samples; training cannot notice that it happened."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.task import Task
from mltrainer.trainer.data.addresses import evaluation_batches
from mltrainer.trainer.stepping import buffers_kept, summed
from mltrainer.trainer.updates.precision import autocast, full

MEND = "return numbers from metrics(self, outputs, targets), such as tensor.item()"


def measure(
    task: Task, model: nn.Module, config: TrainingConfig, samples: Samples, split: str, positions: np.ndarray | None = None
) -> dict[str, float]:
    """Return loss and metrics over samples in evaluation mode.

    Args:
        task: Whose loss and metrics.
        model: On its device.
        config: Seed, device and precision.
        samples: What is measured.
        split: Its name, which addresses its draws.
        positions: Which of the samples, in order; None for all.
    """
    found, targets, loss = outputs(task, model, config, samples, split, positions, writes(task, "metrics"))
    return {"loss": loss, **as_numbers(task.metrics(found, targets))}


def writes(task: Task, *names: str) -> bool:
    """Return whether a task has methods of its own in place of those that read no outputs, such as `metrics`."""
    return any(getattr(getattr(task, name), "__func__", None) is not getattr(Task, name) for name in names)


def as_numbers(given: Any) -> dict[str, float]:
    """Return what a task's metrics gave as plain numbers.

    Raises:
        InputError: It is not a dict of numbers by name.
    """
    if not isinstance(given, dict):
        raise InputError(f"metrics gave {type(given).__name__}; a dict of numbers by name was expected", mend=MEND)
    for name, value in given.items():
        single = value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, numbers.Real)
        if not (isinstance(name, str) and single):
            what = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"[:80]
            raise InputError(f"metrics gave {what} for {name!r}; a number was expected", mend=MEND)
    return {name: float(value) for name, value in given.items()}


@torch.no_grad()
def outputs(
    task: Task,
    model: nn.Module,
    config: TrainingConfig,
    samples: Samples,
    split: str,
    positions: np.ndarray | None = None,
    keep: bool = True,
) -> tuple[Tensor, Tensor, float]:
    """Return outputs and targets on the host, and the mean loss; as `measure`.

    Where nobody reads outputs and targets, `keep` is False: both are then empty, and no memory is held for them.
    """
    positions = np.arange(len(samples)) if positions is None else positions
    found, targets, weighted, items = [], [], [], []
    with _evaluating(model):
        for number, batch in enumerate(evaluation_batches(samples, positions, config, split)):
            seeds.seed_everything(seeds.key(config.seed, "evaluate", number))
            with autocast(config):
                output, target = task.forward(model, batch)
                loss = task.loss(full(output), target)
            if keep:
                found.append(output)
                targets.append(target)
            items.append(task.loss_items(target))
            weighted.append(summed(loss.detach().double(), items[-1]))
    mean = float(torch.stack(weighted).sum() / sum(items))
    return _joined(found).float(), _joined(targets), mean


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.cat(parts).cpu() if parts else torch.zeros(0)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for a block; a buffer that changes even there, such as a counter, is as it was again."""
    with buffers_kept(model):
        model.eval()
        yield
        model.train()
