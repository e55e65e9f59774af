"""The smaller batch at an epoch's end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.samples import Samples
from mltrainer.trainers.native.last_batch import try_last_batch
from tests.projects import PROJECT
from tests.toys import Toy

CONFIG = TrainingConfig.model_validate({**PROJECT, "name": "x", "batch_size": 8})


# A loss that knows batches of eight alone, and one of any batch.
FIXED = Toy(loss=lambda outputs, targets: ((outputs.view(8, 3) - targets) ** 2).mean())
ANY = Toy(loss=nn.functional.mse_loss)


def tried(count: int, model: nn.Module | None = None, task: mltrainer.Task | None = None) -> None:
    samples = Samples(np.arange(count), tensors=(torch.ones(count, 6), torch.ones(count, 3)))
    try_last_batch(task or FIXED, model or nn.Linear(6, 3), samples, CONFIG)


def test_a_loss_that_takes_full_batches_alone_fails_before_an_epoch_has_ended():
    tried(16)
    with pytest.raises(RuntimeError, match="invalid for input of size") as caught:
        tried(19)
    assert caught.value.__notes__ == ["in a batch of 3 samples, as the last of each epoch is with batch_size: 8"]


def test_a_norm_over_one_sample_fails_and_one_that_is_held_does_not():
    model = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        tried(17, model, ANY)
    model[1].eval()
    tried(17, model, ANY)


def test_statistics_and_generators_are_left_as_they_were():
    model = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), nn.Dropout())
    drawn = torch.get_rng_state()
    tried(19, model, ANY)
    assert torch.equal(model[1].running_mean, torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), drawn)
