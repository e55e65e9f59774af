"""The training loop side by side in one run: ours with everything on, a plain PyTorch loop, a hand-optimized one, and others.

Each round trains every work once through every trainer, one after another, on one thread; the first round warms up.
Figures are medians over the rounds of a round's own ratios, with the smallest and the largest, since machines are noisy.
The other trainers take part where they are installed (`make bench-peers`).

    python tests/benchmarks/bench_training_loop.py [--work digits|images|text ...] [--rounds 5] [--json]
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

from torch.optim import AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from tests.benchmarks.loops import by_hand, ours
from tests.benchmarks.loops.command import print_measured
from tests.benchmarks.loops.peers import PEERS
from tests.benchmarks.loops.work import WORKS

MODULES = {"pytorch-ignite": "ignite"}


def trainers() -> dict[str, Callable[[str], float]]:
    """Return every trainer that is installed: each takes a work's name and returns the seconds of its training."""
    own: dict[str, Callable[[str], float]] = {
        "plain PyTorch loop": by_hand.plain,
        "hand-optimized loop": by_hand.optimized,
        "hand-optimized loop that measures training samples and syncs": by_hand.measuring,
        "mltrainer": ours.seconds,
    }
    installed = {
        name: train
        for name, (package, train) in PEERS.items()
        if importlib.util.find_spec(MODULES.get(package, package)) is not None
    }
    return {**own, **installed}


def measure(work: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Return microseconds a step and the ratios to both loops written by hand, for each trainer."""
    chosen = trainers()
    for name, train in chosen.items():
        warm_up(name, train, work)
    times: dict[str, list[float]] = {name: [] for name in chosen}
    for _ in range(rounds):
        for name, train in chosen.items():
            times[name].append(train(work))
    return {
        name: {
            "us_per_step": statistics.median(values) / WORKS[work].steps * 1e6,
            "to_plain": spread(values, times["plain PyTorch loop"]),
            "to_optimized": spread(values, times["hand-optimized loop"]),
        }
        for name, values in times.items()
    }


def warm_up(name: str, train: Callable[[str], float], work: str) -> None:
    """Train once, untimed, and see that the trainer takes as many optimizer steps as the others."""
    taken: list[Optimizer] = []
    hook = register_optimizer_step_post_hook(lambda optimizer, *_: taken.append(optimizer))
    train(work)
    hook.remove()
    count = sum(isinstance(optimizer, AdamW) for optimizer in taken)  # LBFGS fits the plain answers beside which ours is observed
    if count != WORKS[work].steps:
        raise SystemExit(f"{name} took {count} steps of {work}, not {WORKS[work].steps}")


def spread(values: list[float], reference: list[float]) -> dict[str, float]:
    """Return median, smallest and largest of the rounds' ratios."""
    ratios = [value / other for value, other in zip(values, reference, strict=True)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def table(work: str, rows: dict[str, dict[str, Any]]) -> str:
    """Return a work's figures as a table in Markdown."""
    lines = [f"\n**{WORKS[work].title}**, batch {WORKS[work].batch}, {WORKS[work].steps} steps\n"]
    lines += ["| trainer | µs a step | of the plain loop | of the hand-optimized loop |", "|---|---:|---:|---:|"]
    for name, row in sorted(rows.items(), key=lambda item: item[1]["to_plain"]["median"]):
        ratios = [f"{r['median']:.2f} ({r['min']:.2f}-{r['max']:.2f})" for r in (row["to_plain"], row["to_optimized"])]
        lines.append(f"| {name} | {row['us_per_step']:.0f} | {ratios[0]} | {ratios[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print_measured(__doc__, measure, table)
