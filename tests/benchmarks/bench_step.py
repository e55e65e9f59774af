"""Where the time of a training goes, in our loop with everything on.

The parts of a real training are timed where the loop calls them: a clock is read before and after each call, on one
thread of a CPU, where an operation has ended when its call returns. Reading it costs about 0.2 microseconds a part.
"The rest" is the whole less the parts: the loop itself, and waiting for the last checkpoint to reach the disk.

    python tests/benchmarks/bench_step.py [--work digits|images|text ...] [--rounds 5] [--json]
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from mltrainer.trainers.native import stages, stepping
from mltrainer.trainers.native.session import Session
from tests.benchmarks.loops import ours
from tests.benchmarks.loops.command import print_measured
from tests.benchmarks.loops.timing import timed
from tests.benchmarks.loops.work import WORKS

REST, WHOLE = "the rest", "whole"


def to(spent: Counter[str], part: str) -> Callable[[float], None]:
    """Return what adds seconds to a part."""

    def add(seconds: float) -> None:
        spent[part] += seconds

    return add


@contextlib.contextmanager
def watched(session: Session, spent: Counter[str]) -> Iterator[None]:
    """Time the parts of a session's training within a block."""
    trainer = session.trainer
    stepper, recorder = trainer.stepper, trainer.recorder
    calls: list[tuple[str, Any, str]] = [
        ("seeding", stepper.objective, "seed"),
        ("forward and loss", stepper.objective, "loss"),
        ("backward", torch.Tensor, "backward"),
        ("gradient norms, fingerprint", stepping, "gradient_norms"),
        ("gradient norms, fingerprint", recorder, "note"),
        ("gradient norms, fingerprint", recorder, "fetch"),
        ("clipping", stepping, "shape"),
        ("optimizer", stepper.optimizer, "step"),
        ("optimizer", stepper.optimizer, "zero_grad"),
        ("evaluation, history, digest of the weights", trainer, "_evaluate"),
        ("checkpoints, in the training thread", trainer, "_checkpoint"),
    ]
    steps = stages.training_steps

    def batches(*args: Any) -> Iterator[Any]:
        return iter(timed(to(spent, "data"), steps(*args).__next__), None)

    with contextlib.ExitStack() as stack:
        for part, owner, name in calls:
            stack.enter_context(mock.patch.object(owner, name, timed(to(spent, part), getattr(owner, name))))
        stack.enter_context(mock.patch.object(stages, "training_steps", batches))
        yield


def parts(work: str) -> dict[str, float]:
    """Return the microseconds a step of each part of one training."""
    spent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        session = ours.open_session(work, Path(folder))
        with watched(session, spent):
            timed(to(spent, WHOLE), session.train)()
    whole = spent.pop(WHOLE)
    found = {**spent, REST: whole - spent.total(), WHOLE: whole}
    return {part: seconds / WORKS[work].steps * 1e6 for part, seconds in found.items()}


def measure(work: str, rounds: int) -> dict[str, float]:
    """Return the median of each part over rounds; one before them warms up."""
    found = [parts(work) for _ in range(rounds + 1)][1:]
    return {part: statistics.median(one[part] for one in found) for part in found[0]}


def table(work: str, found: dict[str, float]) -> str:
    """Return a work's parts as a table in Markdown."""
    lines = [f"\n**{WORKS[work].title}**, batch {WORKS[work].batch}\n", "| part | µs a step | share |", "|---|---:|---:|"]
    lines += [f"| {part} | {us:.1f} | {us / found[WHOLE]:.1%} |" for part, us in found.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    print_measured(__doc__, measure, table)
