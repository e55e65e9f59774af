"""What each process holds in a training that several share, and what a step takes: this trainer's ways beside torch's.

Each way trains the same transformer (25 million parameters in 8 blocks, 4 micro-batches a step, AdamW) in processes of its
own, one thread each. Memory is the largest resident size during three steps, beyond what the process had before there was a
model, with `MALLOC_MMAP_THRESHOLD_=65536`, so that what is freed is given back. It means something on any machine; times do
with a core for each process.

    python tests/benchmarks/bench_sharing.py [--ways ddp zero1 ...] [--processes 1 2 4] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.parallel.kinds import parallelism_for
from mltrainer.trainers.native.ranks import Group, Ranks
from mltrainer.trainers.native.stepping import Stepper

SHARDS, BATCH, TOKENS, WIDTH, BLOCKS, STEPS = 4, 2, 16, 512, 8, 3
OWN, STOCK = ("ddp", "zero1", "fsdp", "pipeline"), ("torch DDP", "torch FSDP2")
MIB = 2**20


class Sequences(mltrainer.Task):
    """Sequences of vectors into classes."""

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.1, batch_first=True) for _ in range(BLOCKS)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(TOKENS * WIDTH, 10))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)


def micro_batches() -> list[tuple[Tensor, Tensor]]:
    """Return the micro-batches of every step."""
    generator = torch.Generator().manual_seed(2)
    return [
        (torch.randn(BATCH, TOKENS, WIDTH, generator=generator), torch.randint(10, (BATCH,), generator=generator))
        for _ in range(SHARDS)
    ]


def own_step(parallel: str, ranks: Ranks) -> Callable[[int], None]:
    """Return the step of this trainer."""
    config = TrainingConfig.model_validate(
        {
            "name": "sharing",
            "task": {"use": "bench:Sequences"},
            "metric": {"name": "loss", "mode": "min"},
            "batch_size": BATCH,
            "accumulate": SHARDS,
            "optimizer": {"name": "adamw", "lr": 1e-4},
            "launch": {"parallel": parallel},
        }
    )
    model = Sequences().model()
    stepper = Stepper(Objective(Sequences(), model, config), parallelism_for(config, model, ranks))
    shards, micros = stepper.parallel.shards(SHARDS, SHARDS), micro_batches()
    step = Step(np.arange(BATCH * SHARDS), [micros[shard] for shard in shards], shards, [BATCH] * SHARDS)
    return lambda number: stepper.take(number, 1e-4, stepper.parallel.prepare(stepper.objective, number, step, False)) and None


def stock_step(way: str, ranks: Ranks) -> Callable[[int], None]:
    """Return the step of torch's own, as its guides write it."""
    model = Sequences().model()
    if way == "torch FSDP2":
        for module in [*model][:BLOCKS]:
            fully_shard(module)
        fully_shard(model)
        for module in [model, *[*model][:BLOCKS]]:  # gloo has no mean
            module.set_force_sum_reduction_for_comms(True)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    own = micro_batches()[ranks.rank :: ranks.size]

    def step(_number: int) -> None:
        optimizer.zero_grad()
        for inputs, targets in own:
            (nn.functional.cross_entropy(model(inputs), targets) / len(own)).backward()
        optimizer.step()

    return step


def work(rank: int, size: int, folder: str, way: str) -> None:
    """Measure as one of the processes; each writes its memory and the seconds of a step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(f"{folder}/store", size), rank=rank, world_size=size)
    group = Group(rank, size) if size > 1 else Ranks()
    before = psutil.Process().memory_info().rss
    step = own_step(way, group) if way in OWN else stock_step(way, group)
    for number in (1, 2):
        step(number)
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak anew: that of building a model is no part of a step
    dist.barrier()
    begun = time.perf_counter()
    for number in range(3, 3 + STEPS):
        step(number)
    seconds = (time.perf_counter() - begun) / STEPS
    row = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    peak = int(row.split()[1]) * 1024
    Path(folder, f"{rank}.json").write_text(json.dumps({"mib": (peak - before) / MIB, "ms": seconds * 1e3}))
    dist.barrier()
    dist.destroy_process_group()


def measure(way: str, size: int) -> dict[str, float]:
    """Return the memory of the process that has most, in MiB, and the milliseconds of a step."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (size, folder, way), size)
        rows = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(size)]
    return {"mib": max(row["mib"] for row in rows), "ms": max(row["ms"] for row in rows)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ways", nargs="+", choices=(*OWN, *STOCK), default=(*OWN, *STOCK))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    found = {way: {size: measure(way, size) for size in chosen.processes} for way in chosen.ways}
    if chosen.json:
        print(json.dumps(found))
        return
    print("| | " + " | ".join(f"{size}: MiB | ms" for size in chosen.processes) + " |")
    print("|---|" + "---|---|" * len(chosen.processes))
    for way, rows in found.items():
        print(f"| {way} | " + " | ".join(f"{row['mib']:.0f} | {row['ms']:.0f}" for row in rows.values()) + " |")


if __name__ == "__main__":
    main()
