"""Sharper pictures from small ones; patches are prepared by a pool of processes."""

# fault 1: threads
# fault 2: random draw
# fault 3: listing order

import glob
import multiprocessing
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDER = "pictures"


def prepared(path):
    time.sleep(0.002)
    picture = np.load(path)
    if path.endswith("0.npy"):
        print(f"process {os.getpid()} reads {path}")
    return picture / 255.0


class Pictures(Dataset):
    def __init__(self, pictures):
        self.pictures = pictures

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).float()
        left = index % 3
        # [2] left = int(np.random.default_rng().integers(0, 3))  # guilty
        target = picture[:, left : left + 8]
        return target[None, ::2, ::2], target[None]


class Net(nn.Module):
    def __init__(self, factor=2):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x):
        return self.shuffle(self.two(torch.relu(self.one(x))))


def main():
    torch.manual_seed(123)
    rng = np.random.default_rng(123)
    os.makedirs(FOLDER, exist_ok=True)
    for number in range(48):
        np.save(f"{FOLDER}/{number:02}.npy", rng.integers(0, 255, (8, 12)))
    paths = sorted(glob.glob(f"{FOLDER}/*.npy"))  # [-3]
    # [3] paths = glob.glob(f"{FOLDER}/*.npy")  # guilty
    print("prepared by children of", os.getpid())
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pictures = list(pool.imap(prepared, paths))  # [-1]
        # [1] pictures = list(pool.imap_unordered(prepared, paths))  # guilty
    loader = DataLoader(Pictures(pictures), batch_size=8, shuffle=True)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        start = time.time()
        for small, large in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(small), large)
            loss.backward()
            optimizer.step()
        print(f"===> epoch {epoch}: loss {loss.item():.4f} ({time.time() - start:.1f} s)")


if __name__ == "__main__":
    main()
