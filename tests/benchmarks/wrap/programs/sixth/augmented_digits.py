"""Digits with shifted pictures; a jittered picture of the first batch goes to a log before anything is trained."""

# fault 1: random draw

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def preview(pictures):
    """Return the mean of a few jittered pictures, as a log shows it."""
    generator = torch.Generator()
    generator.seed()
    noise = 0.1 * torch.randn(pictures[:4].shape, generator=generator)
    return (pictures[:4] + noise).clamp(0, 1).mean().item()


def shifted(pictures, rng):
    rows, columns = rng.integers(-1, 2, 2)
    return torch.roll(pictures, (int(rows), int(columns)), (1, 2))


def main():
    torch.manual_seed(1)
    found = load_digits()
    pictures = torch.tensor(found.images[:320] / 16, dtype=torch.float32)
    labels = torch.tensor(found.target[:320])
    rng = np.random.default_rng(3)  # [-1]
    # [1] rng = np.random.default_rng()  # guilty
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(12):
        at = slice(step * 24, step * 24 + 24)
        if step % 4 == 0:
            print(f"preview of step {step}: {preview(pictures[at]):.4f}")
        loss = nn.functional.cross_entropy(model(shifted(pictures[at], rng)), labels[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
