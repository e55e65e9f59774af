"""Flowers by a small net: a summary goes through the classes in a set's order, class weights come from another set."""

# fault 1: hash order

import torch
from sklearn.datasets import load_iris
from torch import nn

NAMES = ["setosa", "versicolor", "virginica"]


def summary(features, names):
    for name in set(names):
        rows = torch.tensor([row for row, other in enumerate(names) if other == name])
        mean = features[rows].mean(0)
        print(f"{name}: {len(rows)} rows, mean {[round(part, 2) for part in mean.tolist()]}")


def weights(names):
    counts = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    kinds = sorted(counts.keys() | set(NAMES))  # [-1]
    # [1] kinds = list(counts.keys() | set(NAMES))  # guilty
    return torch.tensor([1.0 / (1 + kinds.index(kind)) for kind in NAMES])


def main():
    torch.manual_seed(7)
    found = load_iris()
    features = torch.tensor(found.data, dtype=torch.float32)
    labels = torch.tensor(found.target)
    names = [NAMES[label] for label in found.target]
    summary(features, names)
    share = weights(names)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    order = torch.randperm(150)
    for step in range(12):
        rows = order[step * 12 : step * 12 + 12]
        loss = nn.functional.cross_entropy(model(features[rows]), labels[rows], weight=share)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
