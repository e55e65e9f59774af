"""Evenly spaced rows: those that are looked at where all of them would take too long."""

from __future__ import annotations

import numpy as np


def evenly_spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many evenly spaced rows of an array, the first and the last among them."""
    chosen: np.ndarray = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)]
    return chosen
