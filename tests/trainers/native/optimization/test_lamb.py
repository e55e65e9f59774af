"""LAMB beside the paper's algorithm 2, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mltrainer.configs.optimizers import Lamb
from mltrainer.trainers.native.optimization.optimizers import build_optimizer

LR, BETA1, BETA2, EPS = 0.02, 0.9, 0.99, 1e-3  # a large eps, so that its place in the formula shows


def by_the_paper(weights: np.ndarray, gradients: list[np.ndarray], decay: float) -> np.ndarray:
    x, m, v = weights.astype(float), np.zeros(weights.shape), np.zeros(weights.shape)
    for t, g in enumerate(gradients, 1):
        m, v = BETA1 * m + (1 - BETA1) * g, BETA2 * v + (1 - BETA2) * g**2
        update = m / (1 - BETA1**t) / (np.sqrt(v / (1 - BETA2**t)) + EPS) + decay * x
        norms = np.linalg.norm(x), np.linalg.norm(update)
        x = x - LR * (norms[0] / norms[1] if min(norms) > 0 else 1.0) * update
    return x


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_steps_are_those_of_the_paper_for_small_and_large_weights_and_zero_ones(decay):
    draws = np.random.default_rng(0)
    begun = [draws.normal(0, 0.2, (4, 3)), draws.normal(0, 20, (6, 5)), np.zeros(4)]  # the second norm is about 110
    gradients = [[draws.normal(0, 1, w.shape) for w in begun] for _ in range(7)]
    model = nn.ParameterList([nn.Parameter(torch.tensor(w)) for w in begun])
    config = Lamb(lr=LR, betas=[BETA1, BETA2], eps=EPS, weight_decay=decay)
    optimizer = build_optimizer(config, model)
    for step in gradients:
        for parameter, gradient in zip(model, step, strict=True):
            parameter.grad = torch.tensor(gradient)
        optimizer.step()
    for nr, parameter in enumerate(model):
        expected = by_the_paper(begun[nr], [step[nr] for step in gradients], decay)
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-6, atol=1e-9)


def test_a_gradient_of_zero_and_a_parameter_without_one_leave_finite_weights():
    model = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))])
    optimizer = build_optimizer(Lamb(weight_decay=0.0), model)
    model[0].grad = torch.zeros(2)
    optimizer.step()
    assert [p.tolist() for p in model] == [[1.0, 1.0], [1.0, 1.0]]
