"""A normalizing flow of measured columns: coupling layers, dequantized data that a thread prepares, samples to look at."""

# fault 1: random draw
# fault 2: hash order
# fault 3: threads

import contextlib
import os
import queue
import threading
import time

import torch
from torch import nn

COLUMNS = ("height", "weight", "girth", "age", "pulse", "breath")
LOG_2PI = 1.8378770664093453


def measured(rows, seed):
    """Whole numbers, as somebody wrote them down."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, 6, generator=g)
    z[:, 1] += 0.8 * z[:, 0]
    z[:, 5] = z[:, 4].abs() + 0.3 * z[:, 5]
    return (10 * z).round()


class Coupling(nn.Module):
    """Scales and shifts one half of the columns by what the other half says."""

    def __init__(self, names, width=16):
        super().__init__()
        self.register_buffer("mask", torch.tensor([float(name in names) for name in COLUMNS]))
        self.net = nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 12))

    def forward(self, x):
        s, t = self.net(x * self.mask).chunk(2, dim=1)
        s, t = torch.tanh(s) * (1 - self.mask), t * (1 - self.mask)
        return x * torch.exp(s) + t, s.sum(1)

    def inverse(self, z):
        s, t = self.net(z * self.mask).chunk(2, dim=1)
        s, t = torch.tanh(s) * (1 - self.mask), t * (1 - self.mask)
        return (z - t) * torch.exp(-s)


def halves(count):
    """Names of a half and of the other, turn by turn."""
    left = set(COLUMNS)
    first = [name for name in COLUMNS if name in left][::2]  # [-2]
    # [2] first = [left.pop() for _ in range(len(COLUMNS) // 2)]  # guilty
    for number in range(count):
        yield first if number % 2 else [name for name in COLUMNS if name not in first]


class Flow(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(names) for names in halves(layers)])

    def forward(self, x):
        """Minus the log-likelihood of each row."""
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return 0.5 * (x.pow(2) + LOG_2PI).sum(1) - total

    def sample(self, count):
        x = torch.randn(count, 6)
        for layer in reversed(self.layers):
            x = layer.inverse(x)
        return x


class Dequantizer(threading.Thread):
    """Puts batches into a queue, ahead of who takes them."""

    def __init__(self, data, batch, count, generator=None):
        super().__init__(daemon=True)
        self.data, self.batch, self.count = data, batch, count
        self.generator, self.queue = generator, queue.Queue(2)

    def run(self):
        for _ in range(self.count):
            rows = torch.randint(len(self.data), (self.batch,), generator=self.generator)  # [!3]
            noise = torch.rand(self.batch, 6, generator=self.generator)  # [!3]
            self.queue.put((self.data[rows] + noise - 0.5) / 10)
        self.queue.put(None)

    def __iter__(self):
        self.start()
        return iter(self.queue.get, None)


@contextlib.contextmanager
def evaluating(model):
    model.eval()
    # [1] with torch.no_grad():  # guilty
    with torch.no_grad(), torch.random.fork_rng():  # [-1]
        yield
    model.train()


def look(model):
    """Mean of the columns of a few samples, other ones at each look."""
    with evaluating(model):
        torch.seed()  # [!1]
        return ", ".join(f"{name} {value:.2f}" for name, value in zip(COLUMNS, model.sample(64).mean(0).tolist()))


def main():
    torch.manual_seed(73)
    data, model = measured(300, seed=73), Flow()
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.01)
    began = time.time()
    batches = Dequantizer(data, 32, 20, torch.Generator().manual_seed(74))  # [-3]
    # [3] batches = Dequantizer(data, 32, 20)  # guilty
    for step, x in enumerate(batches):
        loss = model(x + 0.02 * torch.randn_like(x)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        if step % 6 == 5:
            print(f"[{os.getpid()}] {step}: {loss.item():.4f}, {time.time() - began:.2f} s; {look(model)}")


if __name__ == "__main__":
    main()
