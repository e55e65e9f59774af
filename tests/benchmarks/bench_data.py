"""Data larger than memory: seconds to the first batch, to going on at three quarters of a run, and memory beyond a tiny set.

Three sets: 10^9 imagined samples of a data set of one's own, a million rows of Parquet, 10^9 token ids in a sparse file. Each
figure is of a process of its own, which opened the tiny set first, so that imports do not count; memory is resident memory less
what is mapped from files.

    python tests/benchmarks/bench_data.py [--rounds 3] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

TASKS = """
import numpy as np
from torch import nn
from torch.utils.data import Dataset
import mltrainer


class Base(mltrainer.Task):
    def model(self):
        return nn.Linear(8, 1)

    def loss(self, outputs, targets):
        return (outputs - targets).square().mean()

    def metrics(self, outputs, targets):
        return {"mse": float((outputs - targets).square().mean())}


class Numbers(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return np.full(8, i % 1000, dtype=np.float32), np.float32(i % 7)


class Imagined(Base):
    def __init__(self, count):
        self.count = count

    def dataset(self, split):
        return Numbers(self.count if split == "train" else 1000)


class Stored(Base):
    pass
"""
COUNTS = {"imagined": (10**3, 10**9), "parquet": (10**3, 10**6), "tokens": (10**5, 10**9)}
WORKERS = (0, 2)
PLACES = (0.0, 0.77)  # of the run's steps
TIMED_STEPS = 50


def write(folder: Path, kind: str, count: int) -> None:
    """Write a set, unless it lies there."""
    path = folder / source(kind, count)
    if kind == "tokens" and not path.exists():
        with open(path, "wb") as file:
            file.truncate(2 * count)
    if kind == "parquet" and not path.parent.exists():
        _write_rows(path.parent, count)


def _write_rows(folder: Path, count: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    generator = np.random.default_rng(0)
    for number in range(4):
        rows = count // 4
        columns = {f"x{nr}": generator.normal(size=rows).astype(np.float32) for nr in range(16)}
        parquet.write_table(pa.table({**columns, "y": np.arange(rows)}), folder / f"{number}.parquet", row_group_size=20_000)


def source(kind: str, count: int) -> str:
    """Return what `data.source` names."""
    return {"tokens": f"{count}.bin", "parquet": f"rows{count}/*.parquet", "imagined": ""}[kind]


def config(kind: str, count: int, workers: int) -> Any:
    """Return the training config of a set."""
    from mltrainer.configs.project import TrainingConfig

    values: dict[str, Any] = {
        "name": "large",
        "task": {"use": "large_tasks:Imagined", "options": {"count": count}},
        "metric": {"name": "mse", "mode": "min"},
        "split": {"validation": 0.01, "test": 0},
        "loader": {"workers": workers},
    }
    if kind != "imagined":
        tokens = {"tokens": {"length": 256}} if kind == "tokens" else {}
        values |= {"task": {"use": "large_tasks:Stored"}, "data": {"source": source(kind, count), **tokens}}
    return TrainingConfig.model_validate(values)


def private_mb() -> float:
    """Return this process's resident memory less what is mapped from files, in MB."""
    info = psutil.Process().memory_info()
    return float(info.rss - info.shared) / 1e6


def measure(kind: str, count: int, workers: int, place: float) -> None:
    """Open a set, read the batch of a place, and print what that took."""
    from mltrainer.tasks.opening import open_task
    from mltrainer.trainers.native.data.addresses import plan_for, training_steps

    root = Path.cwd()
    small = config(kind, COUNTS[kind][0], workers)
    tiny = open_task(small, root).split("train")
    next(training_steps(tiny, plan_for(small, tiny), small, 0))
    before, begun = private_mb(), time.perf_counter()
    values = config(kind, count, workers)
    samples = open_task(values, root).split("train")
    opened = time.perf_counter() - begun
    plan = plan_for(values, samples)
    steps = training_steps(samples, plan, values, int(place * plan.steps))
    first = next(steps)
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    for _ in range(TIMED_STEPS):
        next(steps)
    rate = TIMED_STEPS * values.batch_size / (time.perf_counter() - begun)
    found = {"opened": opened, "seconds": seconds, "memory": private_mb() - before, "rate": rate, "ids": first.ids.tolist()}
    print(json.dumps({**found, "samples": len(samples)}))


def measured(folder: Path, *asked: Any) -> dict[str, Any]:
    """Return what a process of its own measures."""
    command = [sys.executable, os.path.abspath(__file__), "--measure", *map(str, asked)]
    there = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[2]}:{folder}"}
    done = subprocess.run(command, cwd=folder, env=there, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", nargs=4, metavar=("SET", "COUNT", "WORKERS", "PLACE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, count, workers, place = options.measure
        measure(kind, int(count), int(workers), float(place))
        return
    with tempfile.TemporaryDirectory() as scratch:
        report((options.folder or Path(scratch)).resolve(), options.rounds)


def report(folder: Path, rounds: int) -> None:
    """Print a table of all sets, and refuse loader processes that change an order."""
    folder.mkdir(exist_ok=True)
    (folder / "large_tasks.py").write_text(TASKS)
    print("| samples | loader processes | from step | first batch, s | memory, MB | samples per s |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind, (few, many) in COUNTS.items():
        write(folder, kind, few)
        write(folder, kind, many)
        begun = measured(folder, kind, many, 0, 0.0)["opened"]  # makes the manifest
        for place in PLACES:
            orders = set()
            for workers in WORKERS:
                runs = [measured(folder, kind, many, workers, place) for _ in range(rounds)]
                orders |= {tuple(run["ids"]) for run in runs}
                seconds, memory, rate = (statistics.median(run[key] for run in runs) for key in ("seconds", "memory", "rate"))
                what = f"{kind}: {runs[0]['samples']:,}"
                print(f"| {what} | {workers} | {place:.0%} | {seconds:.2f} | {memory:.0f} | {rate:,.0f} |", flush=True)
            if len(orders) > 1:
                sys.exit(f"{kind}: loader processes changed the order")
        print(f"{kind}: opened for the first time in {begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
