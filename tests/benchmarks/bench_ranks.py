"""A training step that processes share, beside those of other trainers and beside one process, in one run.

The same processes take the same steps of one transformer (3.2 million parameters, 4 micro-batches a step, clipping, AdamW) in
several ways, one after another in each round: with this trainer's tree, with DistributedDataParallel, with Accelerate and
Lightning Fabric where they are installed, the first process alone while the others wait, and each process by itself at the same
time, which is what the machine could give if sharing cost nothing. One thread a process. Figures are medians over the rounds of
a round's own ratios, with the smallest and the largest. There should be a core for each process: with fewer, the ratios to other
trainers alone mean something.

    build/peers/bin/python tests/benchmarks/bench_ranks.py [--processes 2 4] [--rounds 7] [--steps 5] [--json]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.objective import Objective
from mltrainer.trainers.native.parallel.kinds import parallelism_for
from mltrainer.trainers.native.ranks import Group, Ranks
from mltrainer.trainers.native.stepping import Stepper

SHARDS, BATCH, TOKENS, WIDTH = 4, 4, 64, 256
CONFIG = {
    "name": "ranks",
    "task": {"use": "bench:Sequences"},
    "metric": {"name": "loss", "mode": "min"},
    "batch_size": BATCH,
    "accumulate": SHARDS,
    "clip": {"norm": 1.0},
    "optimizer": {"name": "adamw", "lr": 1e-4},
}
TREE, STOCK, ALONE, APART = "mltrainer", "DistributedDataParallel", "one process", "each by itself"


class Sequences(mltrainer.Task):
    """Sequences of vectors into classes."""

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        return nn.Sequential(
            nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Flatten(), nn.Linear(TOKENS * WIDTH, 10)
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)


def micro_batches() -> list[tuple[Tensor, Tensor]]:
    """Return the micro-batches of every step."""
    generator = torch.Generator().manual_seed(2)
    return [
        (torch.randn(BATCH, TOKENS, WIDTH, generator=generator), torch.randint(10, (BATCH,), generator=generator))
        for _ in range(SHARDS)
    ]


def shared(ranks: Ranks) -> Callable[[int], None]:
    """Return the step of this trainer, shared by some processes."""
    model, config = Sequences().model(), TrainingConfig.model_validate(CONFIG)
    stepper = Stepper(Objective(Sequences(), model, config), parallelism_for(config, model, ranks))
    own, micros = ranks.own(SHARDS, SHARDS), micro_batches()
    step = Step(np.arange(BATCH * SHARDS), [micros[shard] for shard in own], own, [BATCH] * SHARDS)
    return lambda number: stepper.take(number, 1e-4, step) and None


def stock(ranks: Ranks) -> Callable[[int], None]:
    """Return the step of DistributedDataParallel, as its guide writes it."""
    model = DistributedDataParallel(Sequences().model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    own = micro_batches()[ranks.rank :: ranks.size]

    def step(_number: int) -> None:
        optimizer.zero_grad()
        for inputs, targets in own[:-1]:
            with model.no_sync():
                (nn.functional.cross_entropy(model(inputs), targets) / len(own)).backward()
        inputs, targets = own[-1]
        (nn.functional.cross_entropy(model(inputs), targets) / len(own)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def accelerated(ranks: Ranks) -> Callable[[int], None]:
    """Return the step of Accelerate, as its guide to gradient accumulation writes it."""
    from accelerate import Accelerator

    own = micro_batches()[ranks.rank :: ranks.size]
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=len(own))
    plain = Sequences().model()
    model, optimizer = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), lr=1e-4, fused=True))

    def step(_number: int) -> None:
        for inputs, targets in own:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()

    return step


def fabricated(ranks: Ranks) -> Callable[[int], None]:
    """Return the step of Lightning Fabric, as its guide to gradient accumulation writes it."""
    from lightning.fabric import Fabric

    own = micro_batches()[ranks.rank :: ranks.size]
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=ranks.size)
    fabric.launch()
    plain = Sequences().model()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=1e-4, fused=True))

    def step(_number: int) -> None:
        for place, (inputs, targets) in enumerate(own, start=1):
            with fabric.no_backward_sync(model, enabled=place < len(own)):
                fabric.backward(nn.functional.cross_entropy(model(inputs), targets) / len(own))
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


OTHERS = {STOCK: ("torch", stock), "Accelerate": ("accelerate", accelerated), "Lightning Fabric": ("lightning", fabricated)}


def others() -> list[str]:
    """Return the other trainers that are installed."""
    return [name for name, (package, _) in OTHERS.items() if importlib.util.find_spec(package)]


def steps_of_others(ranks: Ranks) -> dict[str, Callable[[int], None]]:
    """Return the steps of the other trainers, some of which find their place in torchrun's variables."""
    place = {"RANK": ranks.rank, "LOCAL_RANK": ranks.rank, "WORLD_SIZE": ranks.size, "LOCAL_WORLD_SIZE": ranks.size}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    return {name: OTHERS[name][1](ranks) for name in others()}


def work(rank: int, size: int, folder: str, rounds: int, steps: int) -> None:
    """Measure as one of the processes; the first one writes the seconds of each way's rounds."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(f"{folder}/store", size), rank=rank, world_size=size)
    group = Group(rank, size)
    ways = {TREE: shared(group), **steps_of_others(group), APART: shared(Ranks())}
    if rank == 0:
        ways[ALONE] = ways[APART]
    seconds: dict[str, list[float]] = {way: [] for way in (TREE, *others(), ALONE, APART)}
    for number in range(rounds + 1):  # the first one warms up
        for way, times in seconds.items():
            dist.barrier()
            begun = time.perf_counter()
            for taken in range(steps if way in ways else 0):
                ways[way](number * steps + taken + 1)
            dist.barrier()
            times += [time.perf_counter() - begun] if number else []
    if rank == 0:
        Path(folder, "seconds.json").write_text(json.dumps(seconds))
    dist.destroy_process_group()


def measure(size: int, rounds: int, steps: int) -> dict[str, Any]:
    """Return the milliseconds of a step and the ratios, with so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (size, folder, rounds, steps), size)
        seconds = json.loads(Path(folder, "seconds.json").read_text())
    ratio = functools.partial(spread, seconds[TREE])
    return {
        "ms_a_step": {way: statistics.median(times) / steps * 1e3 for way, times in seconds.items()},
        "to_others": {way: ratio(seconds[way]) for way in others()},
        "times_as_fast_as_one": {key: 1 / value for key, value in ratio(seconds[ALONE]).items()},
        "at_most": size / spread(seconds[APART], seconds[ALONE])["median"],
    }


def spread(values: list[float], reference: list[float]) -> dict[str, float]:
    """Return median, smallest and largest of the rounds' ratios."""
    ratios = [value / other for value, other in zip(values, reference, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def row(size: int, found: dict[str, Any]) -> str:
    """Return the figures of a number of processes as a row in Markdown."""
    times, gain = found["ms_a_step"], found["times_as_fast_as_one"]
    ratios = [f"{ratio['median']:.2f} ({ratio['min']:.2f}-{ratio['max']:.2f})" for ratio in found["to_others"].values()]
    cells = [
        f"{size}",
        *(f"{times[way]:.1f}" for way in (TREE, STOCK, ALONE)),
        *ratios,
        f"{gain['median']:.2f}",
        f"{found['at_most']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure what the command line names, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {size: measure(size, arguments.rounds, arguments.steps) for size in arguments.processes}
    if arguments.json:
        print(json.dumps(found))
        return
    columns = ["processes", "ms a step", STOCK, ALONE, *(f"of {way}" for way in others()), "times as fast as one", "at most"]
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")
    print("\n".join(row(size, measured) for size, measured in found.items()))


if __name__ == "__main__":
    main()
