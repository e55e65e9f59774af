"""Distinct and common values of long arrays, sorted: numpy's `unique` and `isin` hash them, which takes many times as long."""

from __future__ import annotations

import numpy as np


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct values of an array without NaN, sorted."""
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    found: np.ndarray = ordered[is_new]
    return found


def common(values: np.ndarray, others: np.ndarray) -> int:
    """Return the number of values, repeats counted, that are among others; neither holds NaN."""
    if not len(others):
        return 0
    ordered, wanted = np.sort(others), np.sort(values)  # sorted values are searched in memory order
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return int(np.equal(ordered[places], wanted).sum())
