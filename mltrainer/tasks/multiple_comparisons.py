"""Multiple comparisons: corrected p-values and levels."""

from __future__ import annotations

from collections.abc import Sequence

FIRST_SHARE = 5 / 8  # of a level, for the first comparison: of 0.05 it is the least p-value of five pairs, 1/32
MAX_PAIRS = 1000  # nobody trains more of them


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple comparisons: at most the probability that luck alone gives any that is as small.

    Holm, 1979, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6:65-70. It holds
    however the comparisons depend on one another, as those with one config in common do.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[place])
        found[place] = min(1.0, largest)
    return found


def spent_level(level: float, number: int) -> float:
    """Return the level of one comparison, by its number, in a series that ends when one is passed.

    The first spends five eighths of the level, each later one half of the rest. The shares add up to less than the level,
    so that in a series of any length luck alone passes one with at most that probability (the union bound; spending a level over
    repeated tests: Lan and DeMets, 1983, Discrete Sequential Boundaries for Clinical Trials, Biometrika 70:659-663).

    Args:
        level: The level of the whole series.
        number: The comparison's number, from 1.
    """
    return level * FIRST_SHARE if number == 1 else level * (1 - FIRST_SHARE) * 0.5 ** (number - 1)


def fewest_pairs(level: float, comparisons: int = 1) -> int:
    """Return the least number of pairs with which the sign-flip test can be passed at a level, among several comparisons."""
    return next(pairs for pairs in range(1, MAX_PAIRS) if comparisons * 0.5**pairs <= level)
