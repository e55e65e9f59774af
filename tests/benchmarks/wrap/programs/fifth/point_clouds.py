"""Shapes from points: farthest points chosen in plain Python, a network that does not mind their order."""

# fault 1: random draw
# fault 2: threads
# fault 3: clock

import logging
import math
import os
import random
import threading
import time
from concurrent import futures
from functools import partial

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="[%(asctime)s|%(thread)d] %(message)s")
logger = logging.getLogger("points")
SHAPES = {}


def shape(function):
    SHAPES[function.__name__] = function
    return function


@shape
def sphere(u, v):
    return math.sin(u) * math.cos(v), math.sin(u) * math.sin(v), math.cos(u)


@shape
def cylinder(u, v):
    return math.cos(v), math.sin(v), u / 3


@shape
def saddle(u, v):
    return u / 3, v / 3, u * v / 18


def cloud(kind, count, rng):
    return [SHAPES[kind](rng.uniform(0, 6.28), rng.uniform(0, 6.28)) for _ in range(count)]


def farthest_points(points, count, start):
    """Indices of points that are far from one another."""
    chosen, distance = [start], [float("inf")] * len(points)
    while len(chosen) < count:
        x, y, z = points[chosen[-1]]
        for i, (a, b, c) in enumerate(points):
            d = (a - x) * (a - x) + (b - y) * (b - y) + (c - z) * (c - z)
            if d < distance[i]:
                distance[i] = d
        chosen.append(max(range(len(points)), key=distance.__getitem__))
    return chosen


class Sampler:
    """Clouds and their labels, thinned out; the seconds that it took are kept."""

    def __init__(self, rng, points=900, kept=48):
        self.rng, self.points, self.kept = rng, points, kept
        self.seconds = 0.0

    def first(self, points):
        return self.rng.randrange(len(points))  # [-1]
        # [1] return random.Random().randrange(len(points))  # guilty

    def one(self):
        kind = self.rng.choice(sorted(SHAPES))
        points = cloud(kind, self.points, self.rng)
        chosen = farthest_points(points, self.kept, self.first(points))
        return [points[i] for i in chosen], sorted(SHAPES).index(kind)

    def batch(self, size):
        start = time.perf_counter()
        clouds, labels = zip(*(self.one() for _ in range(size)))
        self.seconds += time.perf_counter() - start
        return torch.tensor(clouds), torch.tensor(labels)


class PointNet(nn.Module):
    def __init__(self, kinds, width=24):
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv1d(3, width, 1), nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, 32, 1))
        self.head = nn.Sequential(nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, kinds))

    def forward(self, x):
        return self.head(self.mlp(x.transpose(1, 2)).max(2).values)


class Ahead:
    """Makes the next batches while the model learns from this one."""

    def __init__(self, makers, size):
        self.makers, self.size = makers, size
        self.pool = futures.ThreadPoolExecutor(len(makers))

    def __iter__(self):
        while True:
            jobs = [self.pool.submit(maker.batch, self.size) for maker in self.makers]
            # [2] for job in futures.as_completed(jobs):  # guilty
            for job in jobs:  # [-2]
                yield job.result()

    def close(self):
        self.pool.shutdown(wait=True, cancel_futures=True)


def smoothing(step, makers):
    """Labels are softened, less and less so."""
    return 0.2 / (1 + step)  # [-3]
    # [3] return 0.2 / (1 + sum(maker.seconds for maker in makers))  # guilty


def main():
    torch.manual_seed(14)
    makers = [Sampler(random.Random(100 + number)) for number in range(3)]
    model, ahead = PointNet(len(SHAPES)), Ahead(makers, size=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    soften = partial(smoothing, makers=makers)
    for step, (clouds, labels) in enumerate(ahead):
        loss = nn.functional.cross_entropy(model(clouds), labels, label_smoothing=soften(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            logger.info("step %d in %d: %.4f, %.2f s of points", step, os.getpid(), loss.item(), sum(m.seconds for m in makers))
        if step == 15:
            break
    ahead.close()
    logger.info("%d shapes, %d threads", len(set(SHAPES)), threading.active_count())


if __name__ == "__main__":
    main()
