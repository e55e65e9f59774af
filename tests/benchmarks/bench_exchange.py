"""The exchange of a step's gradients among processes, through memory that they share and by messages, in turns in one run.

3.2 million numbers in 20 tensors, one thread a process. Processor time is that of one process, which counts its threads that
send and receive; it means something on a busy machine too.

    python tests/benchmarks/bench_exchange.py [--processes 2 4] [--rounds 30]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch._C._distributed_c10d import FileStore

from mltrainer.trainers.native.exchange import Messages, SharedMemory
from mltrainer.trainers.native.ranks import Group

TENSORS, NUMBERS = 20, 160_000


def measured(exchange: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Return the median milliseconds that an exchange takes, and the mean milliseconds of processor time."""
    exchange()  # which makes room
    walls, begun = [], time.process_time()
    for _ in range(rounds):
        at = time.perf_counter()
        exchange()
        walls.append(time.perf_counter() - at)
    return 1e3 * statistics.median(walls), 1e3 * (time.process_time() - begun) / rounds


def in_process(rank: int, size: int, rounds: int, store: str) -> None:
    """Exchange in both ways, twice in turns, and print what the first process took."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(store, size), rank=rank, world_size=size)
    group, tensors = Group(rank, size), [torch.randn(NUMBERS) for _ in range(TENSORS)]
    ways = {"messages": Messages(size, "cpu"), "shared memory": SharedMemory(rank, size)}
    for name, way in (*ways.items(), *ways.items()):
        group._exchange = way
        wall, busy = measured(lambda: group.tree_sum(tensors), rounds)
        if rank == 0:
            print(f"| {size} | {name} | {wall:.1f} | {busy:.1f} |", flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Print a row for each way and number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=30)
    asked = parser.parse_args()
    print("| processes | by | ms | ms of processor time |\n|---|---|---:|---:|")
    for size in asked.processes:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(in_process, (size, asked.rounds, str(Path(folder) / "store")), nprocs=size)


if __name__ == "__main__":
    main()
