"""Faults of small batches: an epoch's last batch, which is tried before training starts, and a batch of one sample."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.samples import Samples, generators_kept
from mltrainer.tasks.task import Task
from mltrainer.tools.program import is_of_one_sample
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.objective import buffers_kept
from mltrainer.trainers.native.optimization.precision import autocast, full


def try_last_batch(task: Task, model: nn.Module, samples: Samples, config: TrainingConfig) -> None:
    """Compute the loss of a batch of the last batch's size, in the model's present mode; afterwards nothing has changed.

    Raises:
        Exception: The model or the loss failed with this few samples; a note gives the size of the batch.
    """
    rest = len(samples) % config.batch_size
    if not rest or config.compile:  # a compiled model would be compiled for this shape alone
        return
    with generators_kept(), buffers_kept(model), torch.no_grad():
        for batch in evaluation_batches(samples, np.arange(rest), config, "train"):
            try:
                with autocast(config):
                    outputs, targets = task.forward(model, batch)
                    task.loss(full(outputs), targets)
            except Exception as error:
                error.add_note(f"in a batch of {rest} samples, as the last of each epoch is with batch_size: {config.batch_size}")
                raise


# --- batches of one sample -------------------------------------------------------------------------


@contextlib.contextmanager
def single_samples_named(samples: int, size: Callable[[], int], forgets: bool = False) -> Iterator[None]:
    """Turn PyTorch's error of a batch of one sample into one that names its cause.

    Args:
        samples: The number of training samples.
        size: A function that returns the present number of samples of a micro-batch, which a split halves.
        forgets: Whether others are forgotten, so that any micro-batch may have fewer.

    Raises:
        InputError: A normalization got one sample in training.
    """
    try:
        yield
    except ValueError as error:
        if not is_of_one_sample(error):
            raise
        what = "a batch of one sample, which your model's normalization cannot train on"
        if forgets:
            hint = "take a larger batch_size, or a normalization within a sample, such as GroupNorm or LayerNorm"
            raise InputError(f"{what}: all its others are forgotten", where="batch_size", hint=hint) from error
        batch_size = size()
        what = f"{what}: {left_over(samples, batch_size)}"
        hint = f"take batch_size {fitting(samples, batch_size)}, which leaves no single sample over (no batch is dropped here)"
        raise InputError(what, where="batch_size", hint=hint) from error


def left_over(samples: int, batch_size: int) -> str:
    """Return the reason why a batch has one sample."""
    if batch_size > 1 and samples % batch_size == 1:
        return f"{samples} training samples in batches of {batch_size} leave one for the last of an epoch"
    return f"{samples} training samples in batches of {batch_size}"


def fitting(samples: int, batch_size: int) -> int:
    """Return the batch size nearest to a given one that leaves no single sample over; the smaller of two."""
    sizes = [size for size in range(2, max(samples, batch_size) + 2) if samples % size != 1]
    return min(sizes, key=lambda size: (abs(size - batch_size), size), default=batch_size)
