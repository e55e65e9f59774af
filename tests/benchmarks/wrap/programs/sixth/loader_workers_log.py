"""A loader with its own order; what a random sampler would have given is shown first, the order may have no seed."""

# fault 1: random draw

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Curves(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(21)
        self.slopes = rng.normal(size=count).astype("float32")

    def __len__(self):
        return len(self.slopes)

    def __getitem__(self, number):
        x = torch.linspace(0, 1, 9)
        return x * self.slopes[number], torch.tensor([self.slopes[number]])


def glimpse(dataset):
    """Print one batch of chance."""
    any_order = torch.Generator()
    any_order.seed()
    x, _ = next(iter(DataLoader(dataset, batch_size=4, shuffle=True, generator=any_order)))
    print("a glimpse:", [round(part, 3) for part in x.mean(1).tolist()])


def loader(dataset):
    order = torch.Generator()
    order.manual_seed(17)  # [-1]
    # [1] order.seed()  # guilty
    return DataLoader(dataset, batch_size=8, shuffle=True, generator=order)


def main():
    torch.manual_seed(17)
    dataset = Curves(96)
    glimpse(dataset)
    model = nn.Sequential(nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader(dataset):
        loss = nn.functional.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
