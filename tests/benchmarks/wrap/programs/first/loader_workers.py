"""Samples that worker processes read and disturb."""

# fault 1: clock
# fault 2: listing order
# fault 3: identity

import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SHARDS = Path("shards")


def write_shards():
    SHARDS.mkdir(exist_ok=True)
    for number in range(12):
        rows = np.random.default_rng(number).normal(number / 12, 1.0, (16, 9)).astype("float32")
        np.save(SHARDS / f"part-{number:03}.npy", rows)


class Shards(Dataset):
    def __init__(self):
        self.files = sorted(SHARDS.iterdir())  # [-2]
        # [2] self.files = [path for path in SHARDS.iterdir() if path.suffix == ".npy"]  # guilty

    def __len__(self):
        return len(self.files) * 16

    def __getitem__(self, index):
        rows = np.load(self.files[index // 16])
        row = rows[index % 16] + 0.05 * np.random.standard_normal(9).astype("float32")
        if random.random() < 0.3:
            row = row[::-1].copy()
        return torch.from_numpy(row[:8]), torch.tensor(row[8])


def seed_worker(worker):
    seed = torch.initial_seed() % 2**31
    info = get_worker_info()
    print(f"worker {worker} of {info.num_workers} is process {os.getpid()}, begun at {time.strftime('%X')}")
    np.random.seed(seed)
    random.seed(seed)
    # [1] np.random.seed(int(time.time() * 1000) % 2**31)  # guilty
    # [3] random.seed(os.getpid())  # guilty


def main():
    torch.manual_seed(0)
    write_shards()
    loader = DataLoader(Shards(), 16, shuffle=True, num_workers=2, worker_init_fn=seed_worker)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    end = time.time()
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            waited = time.time() - end
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            loss.backward()
            optimizer.step()
            if number % 6 == 0:
                print(f"epoch {epoch} batch {number} loss {loss.item():.4f} data {waited:.3f} s")
            end = time.time()


if __name__ == "__main__":
    main()
