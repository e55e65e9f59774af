"""Calls that are for training alone, seen in evaluation mode and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.trainers.native.signals.modules import TrainingCalls

X = torch.randn(4, 3, 8)
ZEROS, ONES = torch.zeros(3), torch.ones(3)


def calls_of(compute: Callable[[Tensor], object]) -> list[str]:
    calls = TrainingCalls()
    with calls, torch.no_grad():
        compute(X)
    return calls.found


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        (lambda x: functional.dropout(x, 0.3), "dropout of 0.3"),
        (lambda x: functional.dropout1d(functional.dropout1d(x, 0.2), 0.2), "dropout of 0.2"),
        (lambda x: torch.dropout(x, 0.1, True), "dropout of 0.1"),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1), "dropout of 0.1"),
        (nn.Dropout(0.5), "dropout of 0.5"),
        (nn.BatchNorm1d(3), "batch norm by the batch's own statistics"),
        (nn.BatchNorm1d(3, track_running_stats=False).eval(), "batch norm by the batch's own statistics, as it keeps none"),
        (lambda x: functional.batch_norm(x, ZEROS, ONES, training=True), "batch norm by the batch's own statistics"),
    ],
)
def test_a_call_for_training_is_told_once(compute, told):
    assert calls_of(compute) == [told]


@pytest.mark.parametrize(
    "compute",
    [
        nn.Dropout(0.5).eval(),
        nn.BatchNorm1d(3).eval(),
        nn.InstanceNorm1d(3),
        nn.Dropout(0.0),
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True).eval(),
        lambda x: functional.scaled_dot_product_attention(x, x, x),
        lambda x: functional.dropout(x, 0.3, training=False),
    ],
)
def test_a_model_that_evaluates_as_it_should_is_silent(compute):
    assert calls_of(compute) == []


def test_an_encoder_layer_in_training_mode_is_told():
    assert "dropout of 0.1" in calls_of(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True))


@pytest.mark.parametrize(
    ("compute", "dropped"),
    [
        (nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.9)), 0.9),
        (nn.Dropout(0.9).eval(), 0.0),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.4), 0.4),
        (torch.relu, 0.0),
    ],
)
def test_the_largest_share_that_is_dropped(compute, dropped):
    calls = TrainingCalls()
    with calls, torch.no_grad():
        compute(X)
    assert calls.dropped == pytest.approx(dropped)
