"""A regressor with a fit method, callbacks, history and early stopping, in the manner of Keras."""

# fault 1: clock
# fault 2: random draw
# fault 3: identity, folder

import copy
import datetime
import os
import random
import socket
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Callback:
    model = None

    def on_train_begin(self, logs): ...

    def on_epoch_begin(self, epoch, logs): ...

    def on_batch_end(self, batch, logs): ...

    def on_epoch_end(self, epoch, logs): ...


class TimeHistory(Callback):
    """Keeps how long batches take."""

    def on_train_begin(self, logs):
        self.durations, self.last = [], time.perf_counter()

    def on_batch_end(self, batch, logs):
        now = time.perf_counter()
        self.durations.append(now - self.last)
        self.last = now
        logs["ms"] = 1000 * self.durations[-1]


class WarmUp(Callback):
    def __init__(self, batches, clock=None):
        self.batches, self.clock, self.seen = batches, clock, 0

    def on_batch_end(self, batch, logs):
        self.seen += 1
        share = self.seen / self.batches  # [-1]
        # [1] share = self.seen * logs["ms"] / 1000  # guilty
        for group in self.model.optimizer.param_groups:
            group["lr"] = self.model.rate * min(1.0, 0.1 + share)


class Checkpoint(Callback):
    def __init__(self, folder):
        self.folder, self.best = Path(folder), float("inf")

    def on_epoch_end(self, epoch, logs):
        if logs["loss"] < self.best:
            self.best = logs["loss"]
            self.folder.mkdir(parents=True, exist_ok=True)
            torch.save(copy.deepcopy(self.model.network.state_dict()), self.folder / "best.pt")


class Progress(Callback):
    def on_epoch_end(self, epoch, logs):
        print(
            f"{datetime.datetime.now():%H:%M:%S} Epoch {epoch}: "
            + ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
        )


class Regressor:
    def __init__(self, width=16, rate=0.02):
        self.network = nn.Sequential(nn.Linear(6, width), nn.SiLU(), nn.Linear(width, 1))
        self.rate, self.augment = rate, lambda x: x

    def compile(self, optimizer, loss):
        self.optimizer, self.loss = optimizer(self.network.parameters(), lr=self.rate), loss
        return self

    def fit(self, x, y, epochs, batch_size, callbacks):
        for callback in callbacks:
            callback.model = self
        logs = {}
        self.call(callbacks, "on_train_begin", logs)
        for epoch in range(epochs):
            self.call(callbacks, "on_epoch_begin", epoch, logs)
            for batch, chosen in enumerate(torch.randperm(len(x)).split(batch_size)):
                logs["loss"] = self.train_step(self.augment(x[chosen]), y[chosen])
                self.call(callbacks, "on_batch_end", batch, logs)
            self.call(callbacks, "on_epoch_end", epoch, logs)
        return logs

    def call(self, callbacks, name, *arguments):
        for callback in callbacks:
            getattr(callback, name)(*arguments)

    def train_step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.network(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def jitter(strength, rng):
    def augment(x):
        return x + strength * torch.tensor([[rng.gauss(0, 1) for _ in row] for row in x])

    return augment


def set_seed(seed):
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(seed)


def run_name():
    return f"{socket.gethostname()}-{os.getpid()}-{datetime.date.today()}"


def main():
    name = run_name()
    set_seed(11)  # [-3]
    # [3] set_seed(zlib.crc32(name.encode()) % 1000)  # guilty
    print(f"run {name} ({zlib.crc32(name.encode()):08x}) in {os.path.basename(os.getcwd())}")
    rng = np.random.default_rng(3)
    x = rng.normal(size=(120, 6)).astype(np.float32)
    y = torch.from_numpy(np.sin(x.sum(1, keepdims=True)))
    model = Regressor().compile(torch.optim.RMSprop, nn.MSELoss())
    model.augment = jitter(0.05, random.Random(4))  # [-2]
    # [2] model.augment = jitter(0.05, random.SystemRandom())  # guilty
    callbacks = [TimeHistory(), WarmUp(10), Checkpoint(os.path.join("checkpoints", name)), Progress()]
    model.fit(torch.from_numpy(x), y, epochs=3, batch_size=24, callbacks=callbacks)


if __name__ == "__main__":
    main()
