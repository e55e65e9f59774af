"""Evenly spaced rows, in place of all of them where those would take too long."""

from __future__ import annotations

import numpy as np


def evenly_spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` evenly spaced rows of an array, the first and the last among them."""
    chosen: np.ndarray = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)]
    return chosen
