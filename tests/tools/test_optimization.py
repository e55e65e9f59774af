"""Schedules follow their closed forms, and gradients are clipped to the limit and no further."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mltrainer.configs.project import AdamW, Constant, Cosine, Sgd
from mltrainer.tools.training_orchestrator.optimization import build_optimizer, clip, gradient_norms, learning_rate


def test_cosine_follows_its_formula_and_ends_at_its_final_share() -> None:
    rate = learning_rate(Cosine(final=0.1), 1.0, steps=100, steps_per_epoch=10)
    assert rate(50) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi * 0.5)) / 2)
    assert rate(100) == pytest.approx(0.1)


def test_warm_up_is_linear_and_reaches_the_rate_at_its_last_step() -> None:
    rate = learning_rate(Cosine(warmup_epochs=2), 0.5, steps=100, steps_per_epoch=10)
    assert [rate(1), rate(10), rate(20)] == pytest.approx([0.025, 0.25, 0.5])
    assert rate(21) < 0.5


def test_constant_stays() -> None:
    rate = learning_rate(Constant(), 0.3, steps=10, steps_per_epoch=5)
    assert {rate(step) for step in range(1, 11)} == {0.3}


@pytest.mark.parametrize(("config", "kind"), [(Sgd(), torch.optim.SGD), (AdamW(), torch.optim.AdamW)])
def test_optimizers_learn_only_what_is_trainable(config: Sgd | AdamW, kind: type) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].requires_grad_(False)
    optimizer = build_optimizer(config, model)
    assert isinstance(optimizer, kind)
    assert sum(p.numel() for p in optimizer.param_groups[0]["params"]) == 3


def test_clipping_scales_to_the_limit_and_leaves_small_gradients_alone() -> None:
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    _, total = gradient_norms(gradients)
    clip(gradients, total, 10.0)
    assert gradients[1].item() == 4.0
    clip(gradients, total, 1.0)
    assert gradient_norms(gradients)[1].item() == pytest.approx(1.0, abs=1e-5)


def test_norms_are_those_of_each_parameter_and_of_all() -> None:
    norms, total = gradient_norms([torch.tensor([3.0, 4.0]), torch.tensor([12.0])])
    assert norms.tolist() == [5.0, 12.0]
    assert total.item() == 13.0
