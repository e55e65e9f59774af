"""The last batch of an epoch, which is smaller where the samples leave a rest: tried before an epoch is trained."""

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
    """Compute the loss of so many samples as an epoch's last batch has, in the model's present mode; nothing of it stays.

    Raises:
        Exception: Model or loss fail with so few; the size of the batch stands in a note of it.
    """
    rest = len(samples) % config.batch_size
    if not rest or config.compile:  # which would be compiled for this shape alone
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
