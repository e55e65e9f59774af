"""Waves from a folder of files: their sizes are told in the listing's order; the first one listed may centre all."""

# fault 1: listing order

from pathlib import Path

import numpy as np
import torch
from torch import nn


def make(folder):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(12)
    for number in range(8):
        wave = np.sin(np.linspace(0, 6, 30 + number) * (1 + number / 4)) + 0.1 * rng.normal(size=30 + number)
        (folder / f"wave-{number}.txt").write_text("\n".join(f"{value:.5f}" for value in wave))


def read(path):
    return torch.tensor([float(line) for line in path.read_text().split()])


def sizes(folder):
    found = torch.tensor([path.stat().st_size for path in folder.iterdir()])
    print(f"sizes {found.tolist()}, cumulative {found.cumsum(0).tolist()}")
    return int(found.sum())


class Waves:
    def __init__(self, folder):
        self.folder = folder
        self.paths = sorted(folder.glob("wave-*.txt"))
        self.centre = read(self.paths[0])[:30].mean()  # [-1]
        # [1] self.centre = read(next(folder.iterdir()))[:30].mean()  # guilty

    def __getitem__(self, number):
        wave = read(self.paths[number % len(self.paths)])[:30] - self.centre
        return wave[:-1], wave[-1:]


def main():
    torch.manual_seed(8)
    folder = Path("waves")
    make(folder)
    print("bytes in all:", sizes(folder))
    waves = Waves(folder)
    model = nn.Sequential(nn.Linear(29, 8), nn.ELU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(12):
        pairs = [waves[step * 2], waves[step * 2 + 1]]
        x, y = (torch.stack(part) for part in zip(*pairs, strict=True))
        loss = (model(x) - y).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
