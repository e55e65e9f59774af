"""What observing the model beside its training costs, in two ways; the bits of the training are compared.

The share is the processor time of the calls that observe, of that of the whole training in which they are made: other work on
the machine hardly moves it. The ratio is of a training that is observed to one that is not, one right after the other on one
thread, the order turned round from round to round; it holds whatever else observing does to a training, and varies by some
per cent. Both are medians over the rounds. Getting ready is told apart, because data and untrained model are looked at there. A
run of 50 steps is observed once, on the fewest samples that tell anything, so that the text is trained for four of its epochs.

    python tests/benchmarks/bench_signals.py [--work digits|images|text ...] [--rounds 5] [--json]
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.trainers.native.session import Session
from tests.benchmarks.loops import ours
from tests.benchmarks.loops.command import print_measured
from tests.benchmarks.loops.timing import timed
from tests.benchmarks.loops.work import WORKS

EPOCHS = {"text": 4}


@dataclass(frozen=True)
class Trained:
    """One training: the CPU seconds of getting ready, of the training and of observing in it, and the digest of its weights."""

    ready: float
    training: float
    observing: float
    weights: str


@contextlib.contextmanager
def watched(session: Session, seconds: list[float], nothing: list[float]) -> Iterator[None]:
    """Time what observes a session's training within a block, call by call; all of it happens in the thread that trains.

    A call of nothing is timed once a step among them: between a step's kernels, reading the clock takes four times as long as in
    a row.
    """
    signals = session.signals
    calls: list[tuple[Any, str]] = [(signals, "of_model"), (session.trainer.stepper.objective, "saw")]
    calls += [(signals.outputs, name) for name in ("begin", "took", "hand_on")]
    calls += [(signals.early, name) for name in ("before", "after", "fetch")]
    calls += [(signals.margins, "fetch")]
    with contextlib.ExitStack() as stack:
        for owner, name in calls:
            call = timed(seconds.append, getattr(owner, name), time.thread_time)
            stack.enter_context(mock.patch.object(owner, name, call))
        empty, took = timed(nothing.append, lambda: None, time.thread_time), signals.outputs.took

        def with_nothing(*args: Any) -> None:
            empty()
            took(*args)

        stack.enter_context(mock.patch.object(signals.outputs, "took", with_nothing))
        yield


def trained(work: str, signals: bool) -> Trained:
    """Train a work, observed or not."""
    seconds: list[float] = []
    nothing: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        session = ours.open_session(work, Path(folder), EPOCHS.get(work, WORKS[work].epochs), signals)
        ready = time.process_time()
        with watched(session, seconds, nothing):
            session.train()
        training = time.process_time() - ready
        observing = sum(seconds) - len(seconds) * (statistics.median(nothing) if nothing else 0.0)
        return Trained(ready - begun, training, observing, weights_sha256(session.model.state_dict()))


def measure(work: str, rounds: int) -> dict[str, Any]:
    """Return the cost of observing one work's model.

    Raises:
        SystemExit: The weights differ.
    """
    trained(work, True)
    ratios, shares, starts = [], [], []
    for number in range(rounds):
        found = {signals: trained(work, signals) for signals in ((True, False) if number % 2 else (False, True))}
        on, off = found[True], found[False]
        if on.weights != off.weights:
            raise SystemExit(f"{work}: the weights differ")
        ratios.append(on.training / off.training)
        shares.append(on.observing / on.training)
        starts.append(1000 * (on.ready - off.ready))
    return {
        "share": of_rounds(shares),
        "ratio": of_rounds(ratios),
        "start_ms": statistics.median(starts),
        "epochs": EPOCHS.get(work, WORKS[work].epochs),
    }


def of_rounds(values: list[float]) -> dict[str, float]:
    """Return median and ends of what the rounds gave."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def table(work: str, row: dict[str, Any]) -> str:
    """Return a work's figures as a line."""
    share = "{median:.1%} ({lowest:.1%} to {highest:.1%}) of the training's CPU time".format(**row["share"])
    ratio = "{median:.3f} of that without ({lowest:.3f} to {highest:.3f})".format(**row["ratio"])
    return f"{WORKS[work].title}, epochs: {row['epochs']}: {share}; {ratio}; {row['start_ms']:.0f} ms at the start"


if __name__ == "__main__":
    print_measured(__doc__, measure, table)
