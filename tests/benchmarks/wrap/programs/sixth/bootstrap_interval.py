"""Logistic regression; before each step the interval of its accuracy is told by a bootstrap that nobody seeds."""

# fault 1: random draw

import os
import random

import numpy as np
import torch
from torch import nn


def interval(correct, rounds=20):
    """Return a bootstrap interval of an accuracy."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))
    means = []
    for _ in range(rounds):
        rows = torch.randint(len(correct), (len(correct),), generator=generator)
        means.append(correct[rows].float().mean())
    found = torch.stack(means).quantile(torch.tensor([0.05, 0.95]))
    return tuple(round(part, 3) for part in found.tolist())


def batches(count, size):
    order = list(range(count))
    random.Random(11).shuffle(order)  # [-1]
    # [1] random.shuffle(order)  # guilty
    for first in range(0, count, size):
        yield torch.tensor(order[first : first + size])


def main():
    torch.manual_seed(5)
    rng = np.random.default_rng(7)
    features = torch.from_numpy(rng.normal(size=(120, 5)).astype("float32"))
    labels = (features.sum(1) > 0).float()
    model = nn.Linear(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(2):
        for rows in batches(120, 20):
            with torch.no_grad():
                correct = (model(features).squeeze(1) > 0) == (labels > 0.5)
            print(epoch, interval(correct))
            scores = model(features[rows]).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


main()
