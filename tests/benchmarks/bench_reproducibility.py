"""What reproducibility costs: seeding and the chain per step, the numerics class per process, portable against native kernels.

python tests/benchmarks/bench_reproducibility.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mltrainer.reproducibility import seeds
from mltrainer.reproducibility.numerics import numerics_class
from mltrainer.runs.launcher import PORTABLE
from mltrainer.trainers.native.recording import FETCH_STEPS, Recorder

STEP_US = 1000.0  # the step that shares are told of: one millisecond
ROUNDS = 7


def microseconds(call: Callable[[int], object], times: int = 2000) -> float:
    """Return the shortest mean time of a call over several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for number in range(times):
            call(number)
        rounds.append((time.perf_counter() - begun) / times * 1e6)
    return min(rounds)


def seeding(step: int) -> None:
    """Seed every generator for a step."""
    seeds.seed_everything(seeds.key(42, "step", step))


def chain() -> float:
    """Return what noting a step, fetching and appending it to the chain takes, per step."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder), 6, 10**6)
        ids, loss, norms = np.arange(64), torch.tensor(0.5), torch.ones(6)

        def step(number: int) -> None:
            recorder.note(number, ids, loss, norms, loss)
            if recorder.full:
                recorder.fetch()

        return microseconds(step, 20 * FETCH_STEPS)


def training(kind: str) -> float:
    """Return the median time of a training step of a small model, in microseconds."""
    torch.set_num_threads(1)
    models: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
        "mlp": lambda: (nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), torch.randn(64, 64)),
        "cnn": lambda: (
            nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 576, 10)),
            torch.randn(64, 1, 28, 28),
        ),
    }
    model, x = models[kind]()
    optimizer, y = torch.optim.AdamW(model.parameters()), torch.randint(0, 10, (64,))
    times = []
    for _ in range(40):
        begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times[5:])


def portable_cost(kind: str) -> float:
    """Return how many times the native step the portable step takes: the median of side-by-side runs."""
    ratios = []
    for _ in range(3):
        sides = []
        for variables in (PORTABLE, {}):
            command = [sys.executable, __file__, "--training", kind]
            done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
            sides.append(float(done.stdout))
        ratios.append(sides[0] / sides[1])
    return statistics.median(ratios)


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    numerics_class("cpu")
    once = time.perf_counter() - begun
    seed_us, chain_us = microseconds(seeding), chain()
    print(f"seeding every generator      {seed_us:7.1f} us a step  {seed_us / STEP_US:6.2%} of a 1 ms step")
    print(f"chain, gradient norms, file  {chain_us:7.1f} us a step  {chain_us / STEP_US:6.2%} of a 1 ms step")
    print(f"numerics class               {once:7.3f} s once a process")
    for kind in ("mlp", "cnn"):
        print(f"portable numerics, {kind}       {portable_cost(kind):7.2f} times the native step")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--training"]:
        print(training(sys.argv[2]))
    else:
        main()
