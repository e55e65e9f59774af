"""A sparse mixture of experts with noisy gates, and a controller beside it that watches how they are used."""

# fault 1: threads, clock
# fault 2: hash order
# fault 3: random draw

import abc
import os
import threading
import time
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

DOMAINS = ("law", "music", "sport", "trade")


class Controller(abc.ABC):
    """Says how hot the gates are."""

    @property
    @abc.abstractmethod
    def temperature(self): ...

    @abc.abstractmethod
    def tick(self): ...

    def close(self):
        return None


class BySteps(Controller):
    def __init__(self, start=2.0, factor=0.97):
        self.value, self.factor = start, factor

    @property
    def temperature(self):
        return self.value

    def tick(self):
        self.value = max(0.05, self.value * self.factor)


class Background(BySteps):
    """Cools down on its own, in a thread."""

    def __init__(self, every=0.005):
        super().__init__(factor=0.998)
        self.every, self.stopped = every, threading.Event()
        self.thread = threading.Thread(target=self.run, name="controller", daemon=True)  # [!1]
        self.thread.start()  # [!1]

    def run(self):
        while not self.stopped.wait(self.every):  # [!1]
            super().tick()  # [!1]

    def tick(self):
        """Nothing: the thread does that."""

    def close(self):
        self.stopped.set()
        self.thread.join()


class Heartbeat(threading.Thread):
    """Counts how long the program has lived, for its last line."""

    def __init__(self):
        super().__init__(daemon=True)
        self.beats, self.done = 0, threading.Event()

    def run(self):
        while not self.done.wait(0.005):
            self.beats += 1


class Experts(nn.Module):
    def __init__(self, width, hidden, count, k):
        super().__init__()
        self.k, self.gate, self.noise = k, nn.Linear(width, count), nn.Linear(width, count)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(count)]
        )

    def forward(self, x, temperature):
        logits = self.gate(x)
        if self.training:
            logits = logits + torch.randn_like(logits) * F.softplus(self.noise(x))
        top, index = (logits / temperature).topk(self.k, dim=1)
        weights = torch.zeros_like(logits).scatter(1, index, top.softmax(1))
        out = sum(weights[:, [i]] * expert(x) for i, expert in enumerate(self.experts))
        load = weights.mean(0)
        return x + out, load.var() / load.mean() ** 2


class Model(nn.Module):
    def __init__(self, domains, width=12):
        super().__init__()
        self.domains = domains
        self.embedding, self.experts = nn.Embedding(len(domains), width), Experts(width, 16, 4, k=2)
        self.head = nn.Linear(width, 1)

    @cached_property
    def number(self):
        return {name: i for i, name in enumerate(self.domains)}

    def forward(self, names, x, temperature):
        h = self.embedding(torch.tensor([self.number[name] for name in names])) + x
        h, balance = self.experts(h, temperature)
        return self.head(h).squeeze(1), balance


def batches(count, size, rngs):
    """Rows of domains; each domain draws from a stream of its own."""
    for _ in range(count):
        names = [DOMAINS[i % 4] for i in range(size)]
        x = np.stack([rngs[name].normal(DOMAINS.index(name), 1.0, 12) for name in names])
        y = np.array([np.sin(row[DOMAINS.index(name)]) for name, row in zip(names, x)])
        yield names, torch.from_numpy(x).float(), torch.from_numpy(y).float()


def main():
    torch.manual_seed(52)
    heart, start = Heartbeat(), time.perf_counter()
    heart.start()
    streams = np.random.SeedSequence(52).spawn(4)  # [-3]
    # [3] streams = np.random.SeedSequence().spawn(4)  # guilty
    rngs = dict(zip(DOMAINS, map(np.random.default_rng, streams)))
    known = frozenset(DOMAINS)
    model = Model(DOMAINS)  # [-2]
    # [2] model = Model(tuple(known))  # guilty
    controller = BySteps()  # [-1]
    # [1] controller = Background()  # guilty
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step, (names, x, y) in enumerate(batches(24, 32, rngs)):
        assert known.issuperset(names)
        prediction, balance = model(names, x, controller.temperature)
        loss = F.mse_loss(prediction, y) + 0.01 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        controller.tick()
        if step % 8 == 0:
            print(f"{os.getpid()} {step}: {loss.item():.4f} at {controller.temperature:.3f}, {len(known)} domains")
    controller.close()
    heart.done.set()
    print(f"{heart.beats} beats in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
