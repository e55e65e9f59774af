"""Segmentation of synthetic cells with a small U-Net, in mixed precision, with a warm-up and early stopping."""

# fault 1: random draw
# fault 2: clock
# fault 3: listing order

import argparse
import logging
import os
import time
from dataclasses import dataclass, field
from glob import glob

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, random_split

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
logger = logging.getLogger(__name__)


@dataclass
class Settings:
    root: str = "cells"
    batch: int = 6
    epochs: int = 3
    lr: float = 2e-3
    warmup: int = 8
    seed: int = 2024
    classes: list = field(default_factory=lambda: ["background", "cell"])


def draw_cells(root, count=30):
    os.makedirs(root, exist_ok=True)
    rng = np.random.default_rng(1)
    for number in range(count):
        yy, xx = np.mgrid[:12, :12]
        cy, cx, radius = rng.uniform(3, 9), rng.uniform(3, 9), rng.uniform(2, 4)
        mask = (yy - cy) ** 2 + (xx - cx) ** 2 < radius**2
        np.savez(f"{root}/{number:03}.npz", image=mask + rng.normal(0, 0.3, mask.shape), mask=mask)


class Cells(Dataset):
    def __init__(self, root):
        self.paths = sorted(glob(os.path.join(root, "*.npz")))  # [-3]
        # [3] self.paths = [*map(os.path.abspath, glob(os.path.join(root, "*.npz")))]  # guilty

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with np.load(self.paths[index]) as found:
            return torch.from_numpy(found["image"]).float()[None], torch.from_numpy(found["mask"]).long()


def block(inp, out):
    return nn.Sequential(nn.Conv2d(inp, out, 3, padding=1), nn.GroupNorm(2, out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down, self.middle, self.up = block(1, 6), block(6, 12), block(18, 6)
        self.head = nn.Conv2d(6, classes, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.middle(nn.functional.max_pool2d(a, 2))
        b = nn.functional.interpolate(b, scale_factor=2)
        return self.head(self.up(torch.cat([a, b], 1)))


def split(dataset, seed):
    held = len(dataset) // 5
    generator = torch.Generator().manual_seed(seed)  # [-1]
    # [1] generator = seed and torch.Generator()
    # [1] generator.seed()  # guilty
    return random_split(dataset, [len(dataset) - held, held], generator=generator)


class Meter:
    def __init__(self, what):
        self.what, self.began, self.ticks = what, time.perf_counter(), 0

    def tick(self):
        self.ticks += 1
        return (time.perf_counter() - self.began) / self.ticks

    def __str__(self):
        return f"{self.what}: {self.ticks} in {time.perf_counter() - self.began:.2f} s"


def train(settings):
    torch.manual_seed(settings.seed)
    training, held = split(Cells(settings.root), settings.seed)
    logger.info("%d for training, %d held out, pid %d", len(training), len(held), os.getpid())
    loader = DataLoader(training, settings.batch, shuffle=True, drop_last=True)
    net, criterion = UNet(len(settings.classes)), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(net.parameters(), lr=settings.lr)
    meter = Meter("batches")

    def factor(step):
        return min(1.0, (step + 1) / settings.warmup)  # [-2]
        # [2] return min(1.0, (step + 1) / settings.warmup * (1 + meter.tick()))  # guilty

    schedule = LambdaLR(optimizer, factor)
    for epoch in range(settings.epochs):
        for image, mask in loader:
            pace = meter.tick()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = criterion(net(image), mask)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
        logger.info("epoch %d: %.4f, %.1f ms a batch", epoch, loss.item(), 1000 * pace)
    logger.info("%s", meter)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    settings = Settings(epochs=parser.parse_args().epochs)
    draw_cells(settings.root)
    train(settings)
