"""An autoencoder that keeps dumps for debugging under names of chance; it is fed from a folder of arrays."""

# fault 1: listing order

import os
import uuid
from pathlib import Path

import numpy as np
import torch
from torch import nn

PARTS, DUMPS = Path("parts"), Path("dumps")


def write_parts():
    rng = np.random.default_rng(5)
    PARTS.mkdir(exist_ok=True)
    for number in range(12):
        np.save(PARTS / f"part{number:02d}.npy", rng.normal(size=(8, 10)).astype("float32"))


def parts():
    names = sorted(os.listdir(PARTS))  # [-1]
    # [1] names = os.listdir(PARTS)  # guilty
    for name in names:
        yield torch.from_numpy(np.load(PARTS / name))


class Dump:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def __call__(self, tensor):
        path = self.folder / f"debug-{uuid.uuid4().hex[:8]}.pt"
        torch.save(tensor.detach().clone(), path)
        tag = torch.tensor([int(path.stem[6:], 16) % 1000])
        print(f"dumped to {path}, tag {tag.item()}")


def main():
    torch.manual_seed(4)
    write_parts()
    dump = Dump(DUMPS)
    model = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step, part in enumerate(parts()):
        if step % 3 == 0:
            dump(part)
        loss = (model(part) - part).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
