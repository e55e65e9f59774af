"""The digests of weights, over all bytes and as a tree over chunks, in turns: in one process, by threads, and in processes.

The weights are 500 MiB in matrices of a transformer's sizes, and a small model's. Each way is taken once a round; the ratio of
a round is of ways that came one after the other, so that other work on the machine disturbs it little. With `--chunks` as many
bytes are hashed in chunks of other sizes.

    python -m tests.benchmarks.bench_weights [--processes 2] [--rounds 7] [--mib 500] [--chunks]
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch._C._distributed_c10d import FileStore

from mltrainer.checkpointing.weights import weights_sha256, weights_tree_sha256
from mltrainer.checkpointing.weights_tree import leaf
from mltrainer.trainers.native.ranks import Group

WIDTH = 1024
Ways = dict[str, Callable[[], object]]


def transformer(mib: int) -> dict[str, Tensor]:
    """Return weights of so many MiB: blocks of four attention matrices, two of a feed-forward network, and norms."""
    shapes = {**{f"attention.{n}": (WIDTH, WIDTH) for n in range(4)}, "up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH)}
    shapes = {**shapes, "norm.weight": (WIDTH,), "norm.bias": (WIDTH,)}
    blocks = max(1, round(mib * 2**20 / (4 * sum(torch.Size(shape).numel() for shape in shapes.values()))))
    return {f"blocks.{block}.{name}": torch.randn(shape) for block in range(blocks) for name, shape in shapes.items()}


def measured(ways: Ways, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way in each round."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(rounds + 1):
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            if round_number:  # the first touches memory
                found[name].append(time.perf_counter() - begun)
    return found


def show(what: str, found: dict[str, list[float]]) -> None:
    """Print a row for each way: the median, and its median, smallest and largest ratio to the first way in a round."""
    first = next(iter(found.values()))
    for name, seconds in found.items():
        ratios = [one / other for one, other in zip(seconds, first, strict=True)]
        told = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"| {what} | {name} | {1e3 * statistics.median(seconds):.3g} | {told} |", flush=True)


def in_process(rank: int, size: int, rounds: int, mib: int, store: str) -> None:
    """Hash the same weights in each of several processes, and share their chunks, in turns."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    state = transformer(mib)
    dist.init_process_group("gloo", store=FileStore(store, size), rank=rank, world_size=size)
    group = Group(rank, size)

    def each() -> None:
        weights_sha256(state)
        group.gather(None)  # as a step that all take together waits for the slowest

    found = measured({"each hashes all bytes": each, "shared chunks": lambda: weights_tree_sha256(state, group)}, rounds)
    if rank == 0:
        show(f"{size} processes", found)
    dist.destroy_process_group()


def by_chunk(mib: int, rounds: int) -> None:
    """Print what chunks of several sizes cost, in one thread and in two."""
    data = memoryview(torch.randint(256, (mib << 20,), dtype=torch.uint8).numpy()).cast("B")

    def in_chunks(size: int, threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(leaf, (data[begin : begin + size] for begin in range(0, len(data), size))))

    sizes = [1 << shift for shift in (14, 16, 18, 20, 22, 24)]
    for threads in (1, 2):
        ways: Ways = {"all bytes": lambda: hashlib.sha256(data).digest()}
        ways |= {f"chunks of {size >> 10} KiB": lambda size=size, threads=threads: in_chunks(size, threads) for size in sizes}
        show(f"threads: {threads}", measured(ways, rounds))


def main() -> None:
    """Print a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=500)
    parser.add_argument("--chunks", action="store_true")
    asked = parser.parse_args()
    print("| of | way | ms | of the first way's time |\n|---|---|---:|---:|")
    if asked.chunks:
        by_chunk(asked.mib, asked.rounds)
        return
    state, small = (
        transformer(asked.mib),
        {name: tensor[:32, :32] for name, tensor in transformer(1).items() if tensor.dim() == 2},
    )
    trees: Ways = {f"chunks, threads: {count}": lambda count=count: weights_tree_sha256(state, threads=count) for count in (1, 2)}
    show("one process", measured({"all bytes": lambda: weights_sha256(state), **trees}, asked.rounds))
    of_small: Ways = {"all bytes": lambda: weights_sha256(small), "chunks": lambda: weights_tree_sha256(small)}
    show("6 matrices of 32 x 32", measured(of_small, 100 * asked.rounds))
    with tempfile.TemporaryDirectory() as folder:
        given = (asked.processes, asked.rounds, asked.mib, str(Path(folder) / "store"))
        mp.spawn(in_process, given, nprocs=asked.processes)


if __name__ == "__main__":
    main()
