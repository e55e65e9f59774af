"""How long a checkpoint holds up a training step: the state is copied and handed over, and written while training goes on.

A perceptron of so many MiB of weights is trained with AdamW, whose state has three times as much, in our loop with
everything on, on one thread of a CPU. Each checkpoint begins when the one before is on the disk. Printed are the time for
which the training stands still, beside the time of one plain copy of the same tensors just before; the time until all is on
the disk, synced, while the training goes on, which is what a trainer that waits for the disk would stand still; and how much
longer steps take meanwhile.

    python tests/benchmarks/bench_checkpoints.py [--mib 10 100 1024] [--saves 5] [--folder .]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import TrainingJob
from mltrainer.tasks.structures import tensors_in
from mltrainer.tools.program import Events
from mltrainer.trainers.native.session import Session
from tests.benchmarks.loops.timing import timed

FEATURES, CLASSES, BATCH, BETWEEN = 64, 10, 16, 8  # BETWEEN: steps from one checkpoint to the next
WIDTHS = {50: 512, 500: 1024}  # of the layers, by the size in MiB up to which a model has them
WIDEST = 4096


class Perceptron(mltrainer.Task):
    """Random classes, told by a perceptron of about so many MiB."""

    def __init__(self, mib: int, steps: int) -> None:
        self.mib, self.samples_of = mib, {"train": steps * BATCH, "validation": BATCH}

    def dataset(self, split: str) -> tuple[Tensor, Tensor] | None:
        """Return the samples of a split."""
        count = self.samples_of.get(split)
        return None if count is None else (torch.randn(count, FEATURES), torch.randint(CLASSES, (count,)))

    def model(self) -> nn.Module:
        """Return the perceptron."""
        width = next((width for most, width in WIDTHS.items() if self.mib <= most), WIDEST)
        layers = max(1, round(self.mib * 2**20 / (4 * width**2)))
        blocks = [part for _ in range(layers) for part in (nn.Linear(width, width, bias=False), nn.ReLU())]
        return nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), *blocks, nn.Linear(width, CLASSES))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy."""
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return the accuracy."""
        return {"accuracy": float((outputs.argmax(-1) == targets).float().mean())}


@dataclass
class Found:
    """Seconds: of plain copies, of the stalls, of the writing, and of the steps with and without it."""

    copies: list[float] = field(default_factory=list)
    stalls: list[float] = field(default_factory=list)
    writing: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)


def open_session(mib: int, steps: int, folder: Path) -> Session:
    """Return a session that is ready to train."""
    options = {"mib": mib, "steps": steps}
    values = {
        "name": "bench",
        "task": {"use": "tests.benchmarks.bench_checkpoints:Perceptron", "options": options},
        "metric": {"name": "accuracy", "mode": "max"},
        "epochs": 1,
        "batch_size": BATCH,
        "optimizer": {"name": "adamw", "lr": 1e-5},
        "schedule": {"name": "constant"},
        "early_stopping": None,
        "checkpoint": {"every_n_steps": BETWEEN, "keep": 1},
        "signals": False,
    }
    config = TrainingConfig.model_validate(values).model_dump()
    job = {"run": "bench", "phase": "none", "purpose": "train", "folder": ".", "config": config, "contract": {}, "threads": 1}
    session = Session(TrainingJob.model_validate(job), folder, Events(os.open(os.devnull, os.O_WRONLY)), lambda: None, Path.cwd())
    session.prepare()
    return session


def measured(mib: int, saves: int, folder: Path) -> Found:
    """Return the times of a training with so many checkpoints."""
    found, session = Found(), open_session(mib, saves * BETWEEN, folder)
    trainer: Any = session.trainer
    checkpoints: Any = session.checkpoints
    writer, save, step = checkpoints._writer, trainer._checkpoint, trainer._train_step

    def saved() -> Any:
        writer.drain()
        timed(found.copies.append, lambda: [tensor.clone() for tensor in tensors_in(trainer.state_tree())])()
        return timed(found.stalls.append, save)()

    def stepped(*given: Any) -> None:
        times = found.beside if writer._busy else found.alone
        timed(times.append, step)(*given)

    trainer._checkpoint, trainer._train_step = saved, stepped
    checkpoints._write = timed(found.writing.append, checkpoints._write)
    session.train()
    assert len(found.writing) == saves, found
    return found


def row(mib: int, found: Found) -> str:
    """Return a row of the table."""
    stalls = [1000 * seconds for seconds in found.stalls]
    relative = statistics.median(stall / copy for stall, copy in zip(found.stalls, found.copies, strict=True))
    beside = statistics.median(found.beside) / statistics.median(found.alone) if found.beside else float("nan")
    step = f"{1000 * statistics.median(found.alone):.1f} ms"
    stall = f"{statistics.median(stalls):.1f} ms ({min(stalls):.1f}-{max(stalls):.1f})"
    rest = f"{relative:.2f} | {statistics.median(found.writing):.2f} s | {beside:.2f}"
    return f"| {mib} MiB | {3 * mib} MiB | {step} | {stall} | {rest} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, nargs="+", default=[10, 100, 1024], help="weights, in MiB")
    parser.add_argument("--saves", type=int, default=5, help="checkpoints of each size")
    parser.add_argument("--folder", type=Path, default=None, help="where they are written; else a temporary folder")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| weights | state | a step | the training stands still | beside a copy | on the disk after | steps meanwhile |")
    print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for mib in asked.mib:
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            print(row(mib, measured(mib, asked.saves, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
