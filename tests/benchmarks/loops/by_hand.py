"""Loops written by hand: the plain one with a DataLoader, one made as fast as PyTorch allows, and that one with more work."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.benchmarks.loops.work import CLIP, DEVICE, EVALUATION_BATCH, LR, WORKS, Pair, Work, accuracy, loss_of


def plain(name: str) -> float:
    """Train with a shuffling DataLoader and PyTorch's defaults; return the seconds."""
    work = WORKS[name]
    train, validation = work.sets()
    batches = DataLoader(train, work.batch, shuffle=True, generator=torch.Generator().manual_seed(42))
    return _train(work, lambda: on_device(batches), lambda: on_device(DataLoader(validation, EVALUATION_BATCH)), fused=None)


def optimized(name: str, measures: bool = False) -> float:
    """Train with rows gathered from memory and the fused optimizer; return the seconds.

    Args:
        name: The work's name.
        measures: Whether as many training samples as validation ones are measured, and the last checkpoints are synced.
    """
    work = WORKS[name]
    (x, y), validation = (tuple(tensor.to(DEVICE) for tensor in pair) for pair in work.data())
    seen = torch.arange(len(validation[0])) * len(x) // len(validation[0])
    return _train(
        work,
        lambda: ((x[i], y[i]) for i in torch.randperm(len(x)).split(work.batch)),
        lambda: _parts(validation),
        fused=True,
        beside=(lambda: _parts((x[seen], y[seen]))) if measures else None,
    )


def measuring(name: str) -> float:
    """Train as `optimized` does, and measure training samples and sync checkpoints besides; return the seconds."""
    return optimized(name, measures=True)


def _parts(pair: Pair) -> Iterable[Any]:
    return zip(*(tensor.split(EVALUATION_BATCH) for tensor in pair), strict=True)


def _train(
    work: Work,
    batches: Callable[[], Iterable[Any]],
    validation: Callable[[], Iterable[Any]],
    fused: bool | None,
    beside: Callable[[], Iterable[Any]] | None = None,
) -> float:
    net = work.model().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), LR, fused=fused)
    best = -1.0
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        for epoch in range(work.epochs):
            for x, y in batches():
                optimizer.zero_grad(set_to_none=True)
                loss_of(net(x), y).backward()
                nn.utils.clip_grad_norm_(net.parameters(), CLIP)
                optimizer.step()
            found = validate(net, validation())
            if beside is not None:
                validate(net, beside())
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, f"{folder}/last.pt")
            if found > best:
                torch.save(state, f"{folder}/best.pt")
            best = max(best, found)
        for path in Path(folder).iterdir() if beside is not None else ():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        return time.perf_counter() - started


def on_device(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches on the device of the benchmark."""
    return ((x.to(DEVICE), y.to(DEVICE)) for x, y in batches)


@torch.no_grad()
def validate(net: nn.Module, batches: Iterable[Any]) -> float:
    """Return the mean accuracy over batches."""
    net.eval()
    found = [(accuracy(net(x), y), len(y)) for x, y in batches]
    net.train()
    return sum(share * count for share, count in found) / sum(count for _, count in found)
