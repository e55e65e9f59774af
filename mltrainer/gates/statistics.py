"""The test by which a candidate must beat the baseline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

TEST = "exact sign-flip, one-sided"
ROUNDING = 1e-9  # sums that differ by less than this share are equal: differences of equal counts differ in their last bits


def improvements(candidate: Sequence[Any], baseline: Sequence[Any], mode: str) -> list[float]:
    """Return by how much the candidate is better on each seed; nothing where a value is missing or not finite.

    Args:
        candidate: The metric on each seed, as records hold it: a run that failed has "nan" or None.
        baseline: The same for the baseline, on the same seeds.
        mode: "max" or "min": which direction is better.

    Raises:
        ValueError: The two do not have the same length.
    """
    pairs = list(zip(candidate, baseline, strict=True))
    if not all(isinstance(value, int | float) and math.isfinite(value) for pair in pairs for value in pair):
        return []
    sign = 1 if mode == "max" else -1
    return [sign * (new - old) for new, old in pairs]


def is_better(differences: list[float], seeds: int, level: float) -> bool:
    """Return whether a mean improvement above zero is more than luck.

    Args:
        differences: One improvement for each seed.
        seeds: How many there must be.
        level: The largest p-value.
    """
    enough = len(differences) >= max(1, seeds)
    return enough and math.fsum(differences) > 0 and sign_flip_p_value(differences) <= level


def sign_flip_p_value(differences: list[float]) -> float:
    """Return the exact one-sided p-value of Fisher's sign-flip test that the mean difference is above zero.

    With n pairs the smallest value is 1 / 2**n (Fisher, 1935, The Design of Experiments, section 21).
    """
    observed = math.fsum(differences) - ROUNDING * math.fsum(map(abs, differences))
    flips = list(itertools.product((1, -1), repeat=len(differences)))
    as_large = sum(math.fsum(s * d for s, d in zip(signs, differences, strict=True)) >= observed for signs in flips)
    return as_large / len(flips)
