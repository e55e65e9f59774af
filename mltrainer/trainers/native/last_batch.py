"""A trial of an epoch's last batch, which is smaller if the samples do not divide evenly, before training starts."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.samples import Samples, generators_kept
from mltrainer.tasks.task import Task
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
