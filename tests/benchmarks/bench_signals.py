"""What observing the model beside its training costs: on against off, side by side in one run; the bits are compared.

Each round trains a work twice, one right after the other on one thread, the order turned round from round to round. The figure is
the median over the rounds of a round's ratio of CPU times, which other work on the machine disturbs least; getting ready is
told apart, because data and untrained model are looked at there. A run of 50 steps is observed once, on the fewest samples that
tell anything, so that the text is trained for four of its epochs.

    python tests/benchmarks/bench_signals.py [--work digits|images|text ...] [--rounds 5] [--json]
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.weights import weights_sha256
from tests.benchmarks.loops import ours
from tests.benchmarks.loops.command import print_measured
from tests.benchmarks.loops.work import WORKS

EPOCHS = {"text": 4}


def trained(work: str, signals: bool) -> tuple[float, float, str]:
    """Return the CPU seconds of getting ready and of training, and the digest of the weights."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        session = ours.open_session(work, Path(folder), EPOCHS.get(work, WORKS[work].epochs), signals)
        ready = time.process_time()
        session.train()
        return ready - begun, time.process_time() - ready, weights_sha256(session.model.state_dict())


def measure(work: str, rounds: int) -> dict[str, Any]:
    """Return the cost of observing one work's model.

    Raises:
        SystemExit: The weights differ.
    """
    trained(work, True)
    ratios, starts = [], []
    for number in range(rounds):
        found = {signals: trained(work, signals) for signals in ((True, False) if number % 2 else (False, True))}
        if found[True][2] != found[False][2]:
            raise SystemExit(f"{work}: the weights differ")
        ratios.append(found[True][1] / found[False][1])
        starts.append(1000 * (found[True][0] - found[False][0]))
    return {
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "start_ms": statistics.median(starts),
        "epochs": EPOCHS.get(work, WORKS[work].epochs),
    }


def table(work: str, row: dict[str, Any]) -> str:
    """Return a work's figures as a line."""
    spread = f"{row['lowest']:.3f} to {row['highest']:.3f}"
    cost = f"{row['ratio']:.3f} of the CPU time without ({spread}), {row['start_ms']:.0f} ms at the start"
    return f"{WORKS[work].title}, epochs: {row['epochs']}: {cost}"


if __name__ == "__main__":
    print_measured(__doc__, measure, table)
