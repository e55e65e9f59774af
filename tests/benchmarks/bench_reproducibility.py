"""What reproducibility costs: seeding and the chain per step, the numerics class per process, portable against native kernels.

python tests/benchmarks/bench_reproducibility.py [--models mlp cnn] [--pairs 3]
"""

from __future__ import annotations

import argparse
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
MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "mlp": lambda: (nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), torch.randn(64, 64)),
    "cnn": lambda: (
        nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 576, 10)),
        torch.randn(64, 1, 28, 28),
    ),
}


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
    model, x = MODELS[kind]()
    optimizer, y = torch.optim.AdamW(model.parameters()), torch.randint(0, 10, (64,))
    times = []
    for _ in range(40):
        begun = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(times[5:])


def portable_cost(kind: str, pairs: int) -> float:
    """Return how many times the native step the portable step takes: the median of side-by-side runs."""
    ratios = []
    for _ in range(pairs):
        sides = []
        for variables in (PORTABLE, {}):
            command = [sys.executable, __file__, "--training", kind]
            done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=True)
            sides.append(float(done.stdout))
        ratios.append(sides[0] / sides[1])
    return statistics.median(ratios)


def table(models: list[str], pairs: int) -> None:
    """Measure, and print the table."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    numerics_class("cpu")
    once = time.perf_counter() - begun
    seed_us, chain_us = microseconds(seeding), chain()
    print(f"seeding every generator      {seed_us:7.1f} us a step  {seed_us / STEP_US:6.2%} of a 1 ms step")
    print(f"chain, gradient norms, file  {chain_us:7.1f} us a step  {chain_us / STEP_US:6.2%} of a 1 ms step")
    print(f"numerics class               {once:7.3f} s once a process")
    for kind in models:
        print(f"portable numerics, {kind}       {portable_cost(kind, pairs):7.2f} times the native step")


def main() -> None:
    """Print the table, or in a process of its own the time of a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--pairs", type=int, default=3, help="of runs side by side, portable and native")
    parser.add_argument("--training", choices=MODELS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.training:
        print(training(given.training))
    else:
        table(given.models, given.pairs)


if __name__ == "__main__":
    main()
