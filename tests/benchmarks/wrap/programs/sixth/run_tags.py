"""A run is tagged by its process's number and host, and the tag's digest is shown; member seeds may come from it."""

# fault 1: identity

import hashlib
import os
import socket

import torch
from torch import nn


def tag():
    text = f"{socket.gethostname()}-{os.getpid()}"
    return text, int(hashlib.sha256(text.encode()).hexdigest()[:6], 16)


def colour(number):
    """Return the run's colour in a chart, by its tag."""
    parts = torch.tensor([number >> 16 & 255, number >> 8 & 255, number & 255]) / 255
    return tuple(round(part, 2) for part in (0.5 + parts / 2).tolist())


def member(number, x, y, steps):
    own = torch.Generator().manual_seed(number)
    # [1] own = torch.Generator().manual_seed(number + os.getpid())  # guilty
    model = nn.Linear(x.shape[1], 1)
    nn.init.normal_(model.weight, std=0.1, generator=own)
    nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        rows = torch.randint(len(x), (8,), generator=own)
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def main():
    text, number = tag()
    print(f"run {text} in {colour(number)}")
    torch.manual_seed(16)
    x = torch.randn(64, 5)
    y = x.sum(1, keepdim=True)
    members = [member(number, x, y, 6) for number in range(2)]
    print(torch.stack([one(x) for one in members]).mean().item())


main()
