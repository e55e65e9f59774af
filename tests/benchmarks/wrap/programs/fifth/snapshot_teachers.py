"""A net taught by snapshots of itself: a cyclical learning rate, a folder of checkpoints, targets from the latest of them."""

# fault 1: random draw
# fault 2: clock
# fault 3: random draw

import contextlib
import os
import random
import shutil
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn, optim


class Snapshots:
    """Weights in a folder that is removed in the end; each has a file of its own."""

    def __init__(self, build, keep=4):
        self.build, self.keep = build, keep
        self.folder = tempfile.mkdtemp(prefix="snapshots-")
        self.number = 0

    def path(self, step):
        name = f"{step:05}.pt"  # [-1]
        # [1] name = os.path.basename(tempfile.mktemp(".pt", dir=self.folder))  # guilty
        return os.path.join(self.folder, name)

    def save(self, model, step):
        torch.save(model.state_dict(), self.path(step))
        self.number += 1

    def names(self):
        return sorted(name for name in os.listdir(self.folder) if name.endswith(".pt"))[-self.keep :]

    def age(self, name):
        return self.names()[::-1].index(name)  # [-2]
        # [2] return 100 * (time.time() - os.stat(os.path.join(self.folder, name)).st_mtime)  # guilty

    def teachers(self):
        """Networks of the snapshots that are kept, the last one last, and how old they are."""
        for name in self.names():
            teacher = self.build()
            teacher.load_state_dict(torch.load(os.path.join(self.folder, name), weights_only=True))
            yield self.age(name), teacher.eval()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        shutil.rmtree(self.folder, ignore_errors=True)


def build():
    return nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Linear(20, 3))


@contextlib.contextmanager
def same_generator():
    """What is drawn inside does not count outside."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def soft_targets(teachers, x):
    total, weight = torch.zeros(len(x), 3), 0.0
    for age, teacher in teachers:
        with torch.no_grad():
            total += 0.5**age * teacher(x).softmax(1)
        weight += 0.5**age
    return total / weight if weight else None


def pick(rng, items, count):
    """Some of the items; all of them where they are few."""
    items = list(items)
    return items if len(items) <= count else rng.sample(items, count)


def make_data(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(150, 8, generator=g)
    return x, (x[:, 0] > 0).long() + (x[:, 1] * x[:, 2] > 0.3).long()


def cycle(step, length, lr):
    return lr * (1 - (step % length) / length)


def main(seed=10, length=2, steps=22):
    torch.manual_seed(seed)
    rng = random.Random(seed)
    random.seed()  # names of temporary folders
    (x, y), model = make_data(seed), build()
    optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    tic = time.perf_counter()
    with Snapshots(build) as snapshots:
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = cycle(step, length, 0.2)
            rows = torch.randint(len(x), (30,))
            output = model(x[rows])
            loss = F.cross_entropy(output, y[rows])
            with same_generator():
                teachers = pick(rng, snapshots.teachers(), 2)  # [-3]
                # [3] teachers = pick(random, snapshots.teachers(), 2)  # guilty
            target = soft_targets(teachers, x[rows])
            if target is not None:
                loss = loss + F.kl_div(output.log_softmax(1), target, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % length == 0:
                snapshots.save(model, step)
        found = len(set(snapshots.names()))
        print(f"{os.getpid()}: {loss.item():.4f}, {found} of {snapshots.number} kept in {os.path.basename(snapshots.folder)}")
    print(f"{time.perf_counter() - tic:.2f} s")


main()
