"""Signs of life of several processes that train together, and what they say about the one that hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mltrainer.executors.executor import stack_file

STACKS_S, LOOK_S = 3.0, 0.1  # the longest that stacks are waited for, and between two looks at them
MEASURED_S, WAITED = 5.0, 0.1  # chosen by us: of a shorter training, and below this share of the time, nothing is said
NO_STACK = "It wrote no stack: it is stopped."
MOST_NAMED = 8  # places in a message; thousands of processes may each have another one


@dataclass(frozen=True)
class Sign:
    """What a process says of itself every second.

    Attributes:
        rank: Its rank.
        step: The training step that it takes; None before the first one.
        place: The line where its main thread is, `file:line`: the project's if one is on the stack, else mltrainer's.
        collective: The exchange with other processes in which it waits; empty outside of one.
        exchanges: The number of the trainer's exchanges so far.
        exchange: The name of the last one.
        works: Whether it has gone on, or used CPU time, since the sign before.
        training_s: Seconds since its first step.
        waited_s: Seconds of these in which it waited for the others.
    """

    rank: int
    step: int | None = None
    place: str = ""
    collective: str = ""
    exchanges: int = 0
    exchange: str = ""
    works: bool = True
    training_s: float = 0.0
    waited_s: float = 0.0

    def line(self) -> bytes:
        """Return the sign as a line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def words(self) -> str:
        """Return step, line and collective operation, as a message says them; empty before the first step."""
        if self.step is None:
            return ""
        where = f" at {self.place}" if self.place else ""
        return f" in step {self.step}{where}" + (f", in {self.collective}" if self.collective else "")


def read(data: bytes) -> Iterator[Sign]:
    """Yield the signs in what was read; a line may be a rank alone, of another machine's processes."""
    for line in data.splitlines():
        found = json.loads(line)
        yield Sign(**found) if isinstance(found, dict) else Sign(found)


def hanging(still: Mapping[int, Sign], size: int) -> tuple[int, str, str] | None:
    """Return the rank that hangs, where, and where the others wait for it, in words; None where none hangs.

    Args:
        still: The last signs of the processes that have not gone on for too long.
        size: The number of all processes.
    """
    alone = next((sign for sign in still.values() if not sign.collective), None)
    if alone is not None:
        return alone.rank, alone.words(), ""
    # One that waits for another is no reason, unless that one waits too.
    if len(still) < size:
        return None
    by_place: dict[tuple[int | None, str, str], list[Sign]] = {}
    for sign in still.values():
        by_place.setdefault((sign.step, sign.place, sign.collective), []).append(sign)
    # The fewest; of as many, those whose exchange the project's own code began.
    odd, *others = sorted(by_place.values(), key=lambda signs: (len(signs), signs[0].place.startswith("mltrainer/")))
    rest = [f"; process {signs[0].rank} waits{signs[0].words()}" for signs in others[:MOST_NAMED]]
    return odd[0].rank, odd[0].words(), "".join(rest)


def slowest(signs: Mapping[int, Sign]) -> str | None:
    """Return in words which process the others waited for; None where they trained too short a time, or waited as long.

    Args:
        signs: The last sign of each process of this machine.
    """
    shares = {rank: sign.waited_s / sign.training_s for rank, sign in signs.items() if sign.training_s >= MEASURED_S}
    if len(shares) < 2:
        return None
    slow = min(shares, key=lambda rank: shares[rank])
    others = statistics.median(share for rank, share in shares.items() if rank != slow)
    if others - shares[slow] < WAITED:
        return None
    own = f"it waited {shares[slow]:.0%} of the time for the others"
    return f"process {slow} was the slowest: {own}, they waited {others:.0%} for it"


def write_stacks(log: Path, meeting: Path, pids: Mapping[int, int], signs: Mapping[int, Sign]) -> None:
    """Ask processes of this machine for the stacks of their threads, and append them to a log.

    Args:
        log: The log.
        meeting: The folder where the processes find each other.
        pids: Their ids, by rank.
        signs: The last sign of each.
    """
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    late, before, stacks = time.monotonic() + STACKS_S, None, dict.fromkeys(pids, "")
    while time.monotonic() < late and (stacks != before or not all(stacks.values())):
        time.sleep(LOOK_S)
        before, stacks = stacks, {rank: _text(stack_file(meeting, rank)) for rank in pids}
    with contextlib.suppress(OSError), open(log, "a") as file:
        for rank, stack in stacks.items():
            sign = signs.get(rank, Sign(rank))
            last = f"; its last exchange: {sign.exchanges}, {sign.exchange or 'none'}"
            file.write(f"\n--- process {rank}{sign.words()}{last}\n{stack or NO_STACK}\n")


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""
