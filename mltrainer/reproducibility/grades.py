"""The verdict on a reproduction, graded: equal in bits, in numbers within a bound, within the spread of seeds, or not.

Where two machines compute in different numerics classes, bits cannot agree; the run is then trained to its end and
judged by its numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.configs.items import GradeSettings
from mltrainer.reproducibility import fingerprint

BITWISE, NUMERICAL, STATISTICAL, NOT = "bitwise", "numerically equal", "statistically equal", "not reproduced"


@dataclass(frozen=True)
class Numbers:
    """The compared numbers of runs with different bits.

    Attributes:
        loss_difference: Largest difference of a step's loss, relative to the larger of it and 1e-6.
        metric_difference: Absolute difference of the best values of the chosen metric.
        metric_size: Larger size of the two metrics, at least 1: shares such as accuracies differ by points.
        seeds: Metric of the same config under other trained seeds; may be empty.
    """

    loss_difference: float
    metric_difference: float
    seeds: Sequence[float] = ()
    metric_size: float = 1.0


def grade(numbers: Numbers, limits: GradeSettings) -> str:
    """Return the grade of a run whose bits differ and which was trained to its end; NaN reaches none.

    Args:
        numbers: Differences of the run.
        limits: Limits of the grades, from the handbook's page on verification.
    """
    differences = (numbers.loss_difference, numbers.metric_difference / numbers.metric_size)
    if all(difference <= limits.loss_bound for difference in differences):
        return NUMERICAL
    if len(numbers.seeds) < limits.min_seeds:
        return NOT
    return STATISTICAL if numbers.metric_difference <= limits.spread * statistics.stdev(numbers.seeds) else NOT


def largest_loss_difference(expected: list[str], found: list[str]) -> float:
    """Return the largest relative difference between the losses of two chains; infinite for different numbers of steps."""
    left, right = (losses(chain) for chain in (expected, found))
    if len(left) != len(right) or not left:
        return float("inf")
    return max(abs(a - b) / max(abs(a), abs(b), 1e-6) for a, b in zip(left, right, strict=True))


def losses(chain: list[str]) -> list[float]:
    """Return the loss of each step of a chain."""
    return [fingerprint.float_of(line.split()[2]) for line in chain if not line.startswith("w ")]
