"""What is odd in the logs of sensors: windows from a pipeline of threads and queues, an autoencoder, a running threshold."""

# fault 1: threads
# fault 2: identity
# fault 3: clock

import argparse
import logging
import os
import queue
import threading
import time
from statistics import NormalDist

import numpy as np
import torch
from torch import nn

log = logging.getLogger("sensors")
END = object()


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--stride", type=int, default=8)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args(argv)


def measurements(sensor, length=200):
    """What a sensor has logged; every sixtieth value is a spike."""
    rng = np.random.default_rng([sensor, 6])
    t = np.arange(length)
    values = np.sin(t / (3 + sensor)) + 0.05 * rng.normal(size=length)
    values[59::60] += 3
    return values.astype(np.float32)


class Reader(threading.Thread):
    """Cuts the logs of some sensors into windows and hands them on."""

    def __init__(self, number, sensors, args, out):
        super().__init__(name=f"reader-{number}", daemon=True)
        self.number, self.sensors, self.args, self.out = number, sensors, args, out

    def run(self):
        for sensor in self.sensors:
            values = measurements(sensor)
            for start in range(0, len(values) - self.args.window, self.args.stride):
                self.out.put((sensor, start, values[start : start + self.args.window]))
                time.sleep(0)
        self.out.put(END)


def gather(args):
    """All windows, in the order of sensors and time."""
    out = queue.Queue(maxsize=8)
    readers = [Reader(number, range(number, 6, args.readers), args, out) for number in range(args.readers)]
    for reader in readers:
        reader.start()  # [!1]
    found, open_readers = [], len(readers)
    while open_readers:
        item = out.get()  # [!1]
        if item is END:
            open_readers -= 1
        else:
            found.append(item)
    found.sort(key=lambda item: item[:2])  # [-1]
    # [1] found.sort(key=lambda item: item[1])  # guilty
    log.info("%d windows of %d sensors by %s", len(found), len({item[0] for item in found}), [r.name for r in readers])
    return torch.from_numpy(np.stack([window for _, _, window in found]))


class Standard(nn.Module):
    """Running mean and spread, as buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("var", torch.ones(()))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(), 0.1)
            self.var.lerp_(x.var(), 0.1)
        return (x - self.mean) / (self.var + 1e-5).sqrt()


def build(args):
    return nn.Sequential(
        Standard(), nn.Linear(args.window, 10), nn.GELU(), nn.Linear(10, 4), nn.GELU(), nn.Linear(4, args.window)
    )


class Noise:
    """Noise of a stream, so that each stream has a different one."""

    def __init__(self, stream):
        self.stream = stream
        self.rng = np.random.default_rng(stream)

    def __call__(self, x):
        return x + torch.from_numpy(self.rng.normal(0, 0.1, x.shape).astype(np.float32))


class Threshold:
    """Above which an error counts as odd; the older what it knows, the less that weighs."""

    def __init__(self, half_life):
        self.half_life, self.mean, self.updated, self.count = half_life, 1.0, time.time(), 0

    def update(self, errors):
        now, self.count = time.time(), self.count + 1
        age = 1.0  # [-3]
        # [3] age = (now - self.updated) if self.count > 8 else 1.0  # guilty
        keep = 0.5 ** (age / self.half_life)
        self.mean, self.updated = keep * self.mean + (1 - keep) * errors.mean().item(), now
        return self.mean * (1 + NormalDist().inv_cdf(0.99))


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(threadName)s %(message)s")
    torch.manual_seed(args.seed)
    windows, net = gather(args), build(args)
    noise = Noise(args.seed)  # [-2]
    # [2] noise = Noise(threading.get_ident() // 4096)  # guilty
    optimizer, threshold = torch.optim.Adam(net.parameters(), lr=3e-3), Threshold(half_life=2.0)
    for number in range(args.passes):
        odd = 0
        for batch in windows.split(24):
            errors = (net(noise(batch)) - batch).pow(2).mean(1)
            limit = threshold.update(errors.detach())
            loss = errors.clamp(max=limit).mean() + 0.01 * errors.mean() * limit
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            odd += int((errors > limit).sum())
        log.info("pass %d in process %d: loss %.4f, %d odd", number, os.getpid(), loss.item(), odd)


if __name__ == "__main__":
    main()
