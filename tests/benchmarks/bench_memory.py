"""Memory: the peak of our loop beside the hand-optimized one's, whether anything grows over many steps, and what an evaluation
holds of a large split where the metrics need all outputs, are accumulated, or are none.

Each peak is that of a process of its own, which imports the same modules and makes the same data first; what making the
data took is forgotten.

    python tests/benchmarks/bench_memory.py [--work digits|images|text ...] [--rounds 3] [--steps 10000]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import Samples
from mltrainer.tasks.task import Task
from mltrainer.trainers.native import evaluation
from tests.benchmarks.loops import by_hand, ours
from tests.benchmarks.loops.work import WORKS

ROWS, OUTPUTS = 50_000, 1_000


def peak_mb() -> float:
    """Return this process's largest resident memory since it was last forgotten, in MiB (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def forget_peak() -> None:
    """Measure the peak anew, from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def train(trainer: str, work: str) -> None:
    """Train in this process and print its peak, in MiB."""
    torch.set_num_threads(1)
    WORKS[work].data()
    forget_peak()
    {"ours": ours.seconds, "optimized": by_hand.optimized}[trainer](work)
    print(json.dumps({"peak": peak_mb()}))


def grow(steps: int) -> None:
    """Train so many steps and print the resident memory after a tenth of them and after all."""
    torch.set_num_threads(1)
    epochs = -(-steps // (WORKS["digits"].steps // WORKS["digits"].epochs))
    seen: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        session = ours.open_session("digits", Path(folder), epochs)
        stepper = session.trainer.stepper
        take = stepper.take

        def watched(number: int, *rest: object) -> object:
            if number in (steps // 10, steps):
                seen[number] = resident_mb()
            return take(number, *rest)  # type: ignore[arg-type]

        stepper.take = watched  # type: ignore[method-assign, assignment]
        session.train()
    print(json.dumps(seen))


class Wide(Task):
    """Gives many outputs for each sample."""

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets)


class Holding(Wide):
    def metrics(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
        return {"accuracy": float((outputs.argmax(1) == targets).double().mean())}


class Accumulating(Wide):
    def accumulate(self, state: Any, outputs: torch.Tensor, targets: torch.Tensor) -> Any:
        right, total = state or (0, 0)
        return right + int((outputs.argmax(1) == targets).sum()), total + len(targets)

    def compute(self, state: Any) -> dict[str, float]:
        return {"accuracy": state[0] / state[1]}


EVALUATED = {"metrics": Holding, "accumulate": Accumulating, "none": Wide}


def evaluate(kind: str) -> None:
    """Evaluate a large split in this process and print by how much its peak rose, in MiB."""
    torch.set_num_threads(1)
    x, y = torch.randn(ROWS, 8), torch.arange(ROWS) % OUTPUTS
    values = {"name": "wide", "task": {"use": "a:B"}, "metric": {"name": "loss", "mode": "min"}}
    config = TrainingConfig.model_validate(values)
    model, samples = torch.nn.Linear(8, OUTPUTS), Samples(np.arange(ROWS), (x, y))
    evaluation.evaluate(EVALUATED[kind](), model, config, samples, "validation", np.arange(512))  # what is loaded once
    forget_peak()
    before = resident_mb()
    evaluation.evaluate(EVALUATED[kind](), model, config, samples, "validation")
    print(json.dumps({"peak": peak_mb() - before}))


def resident_mb() -> float:
    """Return this process's resident memory now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def child(*arguments: str) -> dict[str, float]:
    """Return what this program prints in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_memory", *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(said.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000, help="over which growth is looked for")
    parser.add_argument("--train", nargs=2, metavar=("TRAINER", "WORK"), help=argparse.SUPPRESS)
    parser.add_argument("--grow", type=int, metavar="STEPS", help=argparse.SUPPRESS)
    parser.add_argument("--evaluate", choices=EVALUATED, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(*arguments.train)
    elif arguments.grow:
        grow(arguments.grow)
    elif arguments.evaluate:
        evaluate(arguments.evaluate)
    else:
        compare(arguments.work, arguments.rounds, arguments.steps)


def compare(works: list[str], rounds: int, steps: int) -> None:
    """Print the peaks side by side, and the growth."""
    for work in works:
        hand, own = (
            statistics.median(child("--train", trainer, work)["peak"] for _ in range(rounds)) for trainer in ("optimized", "ours")
        )
        print(f"{work}: hand-optimized {hand:.0f} MiB, mltrainer {own:.0f} MiB, ratio {own / hand:.3f}")
    for kind in EVALUATED:
        rise = child("--evaluate", kind)["peak"]
        print(f"evaluating {ROWS} samples of {OUTPUTS} outputs, metrics: {kind}: {rise:.0f} MiB more")
    (early, before), (late, after) = child("--grow", str(steps)).items()
    print(f"after {early} steps {before:.1f} MiB, after {late} steps {after:.1f} MiB")


if __name__ == "__main__":
    main()
