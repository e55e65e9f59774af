"""Comparisons that are several: how small a p-value must be then."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for being several: the probability that luck alone gives any that is as small, at most.

    Holm, 1979, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6:65-70. It holds
    however the comparisons depend on one another, as those with one config in common do.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[place])
        found[place] = min(1.0, largest)
    return found
