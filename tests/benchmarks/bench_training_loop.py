"""The training loop, side by side in one run: ours with everything on, the plain PyTorch loop, a hand-optimized one.

The work is the same for all: digits, an MLP 64-256-256-10, batch 32, AdamW, clipping to norm 1, one thread; every
epoch the validation set is measured and the best and the last state are saved. Ours also keeps fingerprints, gradient
norms per layer and an event log, and seeds every step.

    python tests/benchmarks/bench_training_loop.py [EPOCHS] [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from mltrainer.configs.project import TrainingConfig
from mltrainer.tools.program import Events
from mltrainer.tools.training_orchestrator.session import Session

BATCH = 32


def config(epochs: int) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {
            "name": "bench",
            "task": {"kind": "image_classification"},
            "data": {"source": "sklearn:digits"},
            "split": {"validation": 0.2, "test": 0.0},
            "model": {"name": "mlp", "hidden": [256, 256]},
            "metric": {"name": "accuracy", "mode": "max"},
            "epochs": epochs,
            "batch_size": BATCH,
            "schedule": {"name": "constant"},
            "early_stopping": None,
            "checkpoint": {"every_n_epochs": 1, "keep": 1},
        }
    )


def open_session(epochs: int, folder: Path) -> Session:
    chosen = config(epochs)
    job = {"run": "bench", "phase": "none", "purpose": "train", "folder": ".", "config": chosen.model_dump(), "contract": {}}
    session = Session(job, folder, Events(os.open(os.devnull, os.O_WRONLY)), lambda: None)
    session.prepare()
    return session


def ours(session: Session) -> float:
    started = time.perf_counter()
    session.train()
    return time.perf_counter() - started


def model() -> nn.Sequential:
    torch.manual_seed(42)
    layers = [nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers)


Sets = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]


def epochs_of(sets: Sets, epochs: int, batches: Callable[[], Any], fused: bool) -> float:
    net, loss_of = model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, fused=fused or None)
    best = -1.0
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for epoch in range(epochs):
            for x, y in batches():
                optimizer.zero_grad(set_to_none=True)
                loss_of(net(x), y).backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
            best = save(net, optimizer, epoch, accuracy(net, sets[1], batched=not fused), best, folder)
        return time.perf_counter() - started


def accuracy(net: nn.Module, validation: tuple[Tensor, ...], batched: bool) -> float:
    net.eval()
    loader = DataLoader(TensorDataset(*validation), 256) if batched else [validation]
    with torch.no_grad():
        right = sum(int((net(x).argmax(1) == y).sum()) for x, y in loader)
    net.train()
    return right / len(validation[1])


def save(net: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, found: float, best: float, folder: str) -> float:
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, f"{folder}/last.pt")
    if found > best:
        torch.save(state, f"{folder}/best.pt")
    return max(best, found)


def plain(sets: Sets, epochs: int) -> float:
    generator = torch.Generator().manual_seed(42)
    loader = DataLoader(TensorDataset(*sets[0]), BATCH, shuffle=True, generator=generator)
    return epochs_of(sets, epochs, lambda: loader, fused=False)


def optimized(sets: Sets, epochs: int) -> float:
    x, y = sets[0]
    return epochs_of(sets, epochs, lambda: ((x[i], y[i]) for i in torch.randperm(len(x)).split(BATCH)), fused=True)


def main() -> None:
    epochs, rounds = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 20), (2, 5)))
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {"plain": [], "optimized": [], "ours": []}
    for _ in range(rounds + 1):  # the first round warms up
        with tempfile.TemporaryDirectory() as folder:
            session = open_session(epochs, Path(folder))
            sets = tuple(session.task.split(name).tensors for name in ("train", "validation"))
            torch.use_deterministic_algorithms(False)
            times["plain"].append(plain(sets, epochs))  # type: ignore[arg-type]
            times["optimized"].append(optimized(sets, epochs))  # type: ignore[arg-type]
            torch.use_deterministic_algorithms(True)
            times["ours"].append(ours(session))
            steps = session.plan.steps
    report(times, steps)


def report(times: dict[str, list[float]], steps: int) -> None:
    ratios = {name: statistics.median(a / b for a, b in zip(times[name][1:], times["plain"][1:], strict=True)) for name in times}
    rows = {
        name: {"us_per_step": round(statistics.median(v[1:]) / steps * 1e6, 1), "to_plain": round(ratios[name], 3)}
        for name, v in times.items()
    }
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
