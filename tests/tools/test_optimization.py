"""Optimizers take what is trainable, and gradients are clipped to the limit and no further."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mltrainer.configs.project import AdamW, Sgd
from mltrainer.tools.training_orchestrator.optimization import build_optimizer, clip, gradient_norms


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
