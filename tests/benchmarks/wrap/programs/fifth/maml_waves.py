"""Learning to learn waves: model-agnostic meta-learning with functional calls, tasks drawn by a sampler of its own."""

# fault 1: random draw
# fault 2: unwritten memory
# fault 3: identity

import os
import time
import zlib
from typing import NamedTuple, Protocol

import torch
from torch import nn, optim
from torch.func import functional_call, grad


class Task(NamedTuple):
    amplitude: float
    phase: float

    def __call__(self, x):
        return self.amplitude * torch.sin(x - self.phase)


class Source(Protocol):
    def sample(self) -> Task: ...


class Waves:
    """Tasks from a distribution; each source has its own stream."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def sample(self):
        amplitude, phase = torch.rand(2, generator=self.g).tolist()
        return Task(0.1 + 4.9 * amplitude, 3.1416 * phase)


class Harder:
    """Those of another source, and from some step on waves that are disturbed."""

    def __init__(self, source, after, jitter):
        self.source, self.after, self.jitter, self.drawn = source, after, jitter, 0

    def sample(self):
        self.drawn += 1
        task = self.source.sample()
        if self.drawn <= self.after:
            return task
        return task._replace(phase=task.phase + self.jitter())


def gaussian(scale, seed=None):
    g = torch.Generator()
    g.manual_seed(seed) if seed is not None else g.seed()  # [!1]
    return lambda: scale * torch.randn((), generator=g).item()


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.body(x))


def mse(params, model, x, y):
    return (functional_call(model, params, (x,)) - y).pow(2).mean()


def adapted(model, x, y, lr=0.01, steps=2):
    params = dict(model.named_parameters())
    for _ in range(steps):
        grads = grad(mse)(params, model, x, y)
        params = {name: value - lr * grads[name] for name, value in params.items()}
    return params


class Schedule:
    """How many shots a task has: the numbers of a list, round and round, the first round by default."""

    def __init__(self, rounds):
        self.shots = torch.zeros(rounds, 4, dtype=torch.long)  # [-2]
        # [2] self.shots = torch.LongTensor(rounds, 4)  # guilty
        for number in range(1, rounds):
            self.shots[number] = torch.tensor([3, 4, 5, 6]) + number

    def __getitem__(self, step):
        return 5 + int(self.shots.view(-1)[step % self.shots.numel()]) % 11


def seed_of(model, given):
    name = str(type(model).__name__)  # [-3]
    # [3] name = str(type(model).forward)  # guilty
    return given + zlib.crc32(name.encode()) % 1000


def main(seed=40, meta_batch=4):
    torch.manual_seed(seed)
    model = Net()
    source = Harder(Waves(seed_of(model, seed)), after=28, jitter=gaussian(0.3, seed))  # [-1]
    # [1] source = Harder(Waves(seed_of(model, seed)), after=28, jitter=gaussian(0.3))  # guilty
    schedule, optimizer = Schedule(rounds=5), optim.Adam(model.parameters(), lr=1e-3)
    points, started = torch.Generator().manual_seed(seed), time.time()
    for step in range(18):
        shots, losses = schedule[step], []
        for _ in range(meta_batch):
            task = source.sample()
            x = 10 * torch.rand(2 * shots, 1, generator=points) - 5
            params = adapted(model, x[:shots], task(x[:shots]))
            losses.append(mse(params, model, x[shots:], task(x[shots:])))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"{step:3d} {loss.item():.4f} ({source.drawn} tasks, {time.time() - started:.2f} s, process {os.getpid()})")


main()
