"""The verdict on a reproduction, graded: equal in bits, in numbers within a bound, within the spread of seeds, or not.

Where two machines compute in different numerics classes, bits cannot agree; the run is then trained to its end and
judged by its numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.reproducibility import fingerprint

BITWISE, NUMERICAL, STATISTICAL, NOT = "bitwise", "numerically equal", "statistically equal", "not reproduced"
# Chosen by us. Measured on the digits example, 380 steps: 8e-7 between 1 and 2 threads, 3e-6 between AVX-512 and the
# portable kernels; another seed differs by more than 1 within the first steps.
LOSS_BOUND = 1e-3
MIN_SEEDS = 3  # a spread of fewer values says nothing
SPREAD = 2.0  # standard deviations, about 95 % of a normal distribution


@dataclass(frozen=True)
class Numbers:
    """What is compared where bits differ.

    Attributes:
        loss_difference: The largest difference of a step's loss, relative to the larger of it and 1e-6.
        metric_difference: The absolute difference of the chosen metric at its best.
        seeds: The metric of the same config under other seeds, as far as they were trained; may be empty.
    """

    loss_difference: float
    metric_difference: float
    seeds: Sequence[float] = ()


def grade(numbers: Numbers) -> str:
    """Return the grade of a run whose bits differ and which was trained to its end; NaN reaches none."""
    if numbers.loss_difference <= LOSS_BOUND:
        return NUMERICAL
    if len(numbers.seeds) >= MIN_SEEDS and numbers.metric_difference <= SPREAD * statistics.stdev(numbers.seeds):
        return STATISTICAL
    return NOT


def largest_loss_difference(expected: list[str], found: list[str]) -> float:
    """Return the largest relative difference between the losses of two chains; infinite where they have unequal steps."""
    left, right = (losses(chain) for chain in (expected, found))
    if len(left) != len(right) or not left:
        return float("inf")
    return max(abs(a - b) / max(abs(a), abs(b), 1e-6) for a, b in zip(left, right, strict=True))


def losses(chain: list[str]) -> list[float]:
    """Return the loss of each step of a chain."""
    return [fingerprint.float_of(line.split()[2]) for line in chain if not line.startswith("w ")]
