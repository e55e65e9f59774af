"""A batch of one sample that a norm cannot train on is named, with a batch size that leaves none over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.errors import InputError
from mltrainer.trainers.native.last_batch import fitting, single_samples_named


class Line(mltrainer.Task):
    """A straight line through a batch norm."""

    def samples(self) -> tuple[Tensor, Tensor]:
        x = torch.linspace(-1, 1, 30)[:, None]
        return x, 2 * x

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [4, 1])
def test_fit_says_where_one_sample_comes_from_and_the_size_that_it_names_trains(batch_size):
    keys: dict[str, Any] = {"epochs": 1, "split": {"validation": 0.2, "test": 0.1}, "clip": None}
    with pytest.raises(InputError, match="a batch of one sample") as caught:
        mltrainer.fit(Line(), batch_size=batch_size, **keys)
    said = f"{caught.value} {caught.value.hint}"
    assert f"21 training samples in batches of {batch_size}" in said
    assert caught.value.where == "batch_size"
    assert mltrainer.fit(Line(), batch_size=fitting(21, batch_size), **keys).state == "finished"


@pytest.mark.parametrize("samples", [7, 21, 64, 97])
@pytest.mark.parametrize("batch_size", [1, 2, 8, 32, 96])
def test_the_size_that_is_named_leaves_no_single_sample_and_is_the_nearest(samples, batch_size):
    found = fitting(samples, batch_size)
    assert found > 1
    assert samples % found != 1
    nearer = [size for size in range(2, 3 * batch_size + 4) if abs(size - batch_size) < abs(found - batch_size)]
    assert all(samples % size == 1 for size in nearer)


def test_another_error_is_left_as_it_is():
    with pytest.raises(ValueError, match="other"), single_samples_named(9, lambda: 4):
        raise ValueError("other")
