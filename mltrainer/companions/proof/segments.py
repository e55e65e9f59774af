"""The segments of a run, which of them an audit trains again, and how likely it misses a forgery."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Segment:
    """The steps of a run after one checkpoint up to the next one.

    Attributes:
        begin: The step of the checkpoint that it starts from; the step before the run's first one where it starts from none.
        end: Its last step.
    """

    begin: int
    end: int

    @property
    def steps(self) -> int:
        """The number of its steps."""
        return self.end - self.begin


def segments(begun: int, saved: Sequence[int], last: int) -> list[Segment]:
    """Return the segments of a run, in order.

    Args:
        begun: The step before its first one.
        saved: The steps of its checkpoints.
        last: Its last step.
    """
    cuts = sorted({begun, last, *(step for step in saved if begun < step < last)})
    return [Segment(*pair) for pair in itertools.pairwise(cuts)]


def drawn(every: Sequence[Segment], share: float, commitment: str, nonce: str) -> list[Segment]:
    """Return the segments to train again, in order: the first, the last, and others, at least one, up to their share of steps.

    The others come in the order of the SHA-256 of `COMMITMENT NONCE BEGIN`. Without the nonce nobody can predict them, and an
    auditor who fixed the nonce beforehand cannot choose them.

    Args:
        every: All segments of the run.
        share: The share of the steps between the first and the last segment to train again, at most 1.
        commitment: The digest of what the author committed to.
        nonce: The auditor's text, unknown to the author at that time.
    """
    fixed, others = [every[0], every[-1]] if len(every) > 1 else list(every), every[1:-1]
    wanted = share * sum(one.steps for one in others)
    found, replayed = {*fixed}, 0
    for segment in sorted(others, key=lambda one: _place(commitment, nonce, one)):
        if replayed >= wanted:
            break
        found.add(segment)
        replayed += segment.steps
    return sorted(found)


def _place(commitment: str, nonce: str, segment: Segment) -> str:
    return hashlib.sha256(f"{commitment} {nonce} {segment.begin}".encode()).hexdigest()


def miss_probability(every: Sequence[Segment], replayed: int, forged: int) -> float:
    """Return the probability that an audit misses all forged segments; they are not the first or the last one.

    If d of the n segments between these two are drawn, all of f forged ones are missed with probability C(n - f, d) / C(n, d).

    Args:
        every: All segments of the run.
        replayed: The number of segments that were trained again, first and last among them.
        forged: The number of forged segments.
    """
    between = len(every) - 2
    if forged > between or replayed >= len(every):
        return 0.0
    return math.comb(between - forged, replayed - 2) / math.comb(between, replayed - 2)


def fewest_forged(every: Sequence[Segment], share: float) -> int:
    """Return the fewest segments between the first and the last that hold a share of the run's steps; at least 1."""
    wanted, held = share * sum(one.steps for one in every), 0
    for count, segment in enumerate(sorted(every[1:-1], key=lambda one: -one.steps), 1):
        held += segment.steps
        if held >= wanted:
            return count
    return len(every)
