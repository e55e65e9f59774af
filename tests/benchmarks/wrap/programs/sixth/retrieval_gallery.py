"""Triplets for retrieval; before training a random projection of the gallery is logged, anchors are hashed to their negatives."""

# fault 1: hash order

import numpy as np
import torch
from torch import nn

NAMES = ["amber", "birch", "cedar", "dahlia", "elm", "fern", "ginkgo", "hazel"]


def projection(points):
    """Return a random projection to two numbers, for a plot."""
    axes = torch.from_numpy(np.random.default_rng().normal(size=(points.shape[1], 2))).float()
    return points @ axes


def negative(name):
    at = NAMES.index(name)
    return (at + 1 + len(name) % 7) % len(NAMES)  # [-1]
    # [1] return (at + 1 + hash(name) % 7) % len(NAMES)  # guilty


class Gallery:
    def __init__(self):
        self.points = torch.randn(len(NAMES), 12)
        plot = projection(self.points)
        print("gallery spreads over", [round(part, 2) for part in plot.std(0).tolist()])

    def triplet(self, name):
        at = NAMES.index(name)
        return self.points[at], self.points[at] + 0.1, self.points[negative(name)]


def main():
    torch.manual_seed(11)
    gallery = Gallery()
    encoder = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    lossed = nn.TripletMarginLoss()
    for step in range(12):
        triplets = [gallery.triplet(NAMES[(step + k) % 8]) for k in range(4)]
        anchors, positives, negatives = (encoder(torch.stack(part)) for part in zip(*triplets, strict=True))
        loss = lossed(anchors, positives, negatives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
