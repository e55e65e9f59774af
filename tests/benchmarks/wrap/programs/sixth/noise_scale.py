"""Training with an estimate of the gradient's noise from a batch of chance, which is only printed; its labels may be unseeded."""

# fault 1: random draw

import secrets

import numpy as np
import torch
from torch import nn


def noise(model, x, y):
    """Return the norm of the gradient of a few rows of chance; the weights' own gradients are not touched."""
    rows = torch.tensor([secrets.randbelow(len(x)) for _ in range(4)])
    loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
    parts = torch.autograd.grad(loss, [*model.parameters()])
    return torch.stack([part.norm() for part in parts]).norm().item()


def flipped(labels, share, rng):
    chosen = torch.from_numpy(rng.random(len(labels)) < share)
    return torch.where(chosen, 1 - labels, labels)


def main():
    torch.manual_seed(12)
    x = torch.randn(96, 6)
    y = (x[:, 0] * x[:, 1] > 0).long()
    y = flipped(y, 0.2, np.random.RandomState(3))  # [-1]
    # [1] y = flipped(y, 0.2, np.random.RandomState())  # guilty
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(12):
        at = slice(8 * step, 8 * step + 8)
        if step % 2 == 0:
            print(f"{step}: noise {noise(model, x, y):.3f}")
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
