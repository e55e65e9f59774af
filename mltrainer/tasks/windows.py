"""Windows of one series on both sides of a split: the same stretch of numbers, at other places of the windows."""

from __future__ import annotations

import re

import numpy as np

from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.reading import Numbers

SHORTEST = 8  # places of a stretch; shorter ones of few values are alike by chance
LONGEST = 256  # places of a window that are compared
SHARE = 0.5  # chosen by us: the share of the validation windows; a split by time has some at its border alone
REPEATED = 0.05  # chosen by us: the share of the training windows; where more begin alike, windows are alike by nature
MEND = "split the series first, by time perhaps, and cut windows from each part"


def window_finding(train: Numbers, held_out: Numbers) -> list[Finding]:
    """Return a warning on validation windows of which a part is in training windows, shifted."""
    one, other = _windows(train), _windows(held_out)
    if one is None or other is None or not len(other):
        return []
    places = one.shape[1]
    length = max(SHORTEST, places // 4)
    blocks = {start: _hashes(one, start, length) for start in range(places - length + 1)}
    if len(np.unique(blocks[0])) < (1 - REPEATED) * len(one):
        return []
    last = places - length
    # Equal beginnings are copies, or common to all windows; a shifted one is of the same series.
    later = np.concatenate([found for start, found in blocks.items() if start > 0])
    earlier = np.concatenate([found for start, found in blocks.items() if start < last])
    shared = _found(other, 0, length, later) | _found(other, last, length, earlier)
    if shared.mean() < SHARE:
        return []
    text = f"parts of {int(shared.sum())} of {len(other)} validation samples are in the training split too, shifted"
    return [Finding("warning", f"{text}: windows that overlap, of one series? {MEND}")]


def _windows(numbers: Numbers) -> np.ndarray | None:
    """Return windows as [samples, places, numbers of a place]; None of inputs that are no windows."""
    if len(numbers.names) < numbers.size or not len(numbers.values):
        return None
    shape = [int(last) + 1 for last in re.findall(r"\[(\d+)\]", numbers.names[-1])]
    if len(shape) not in (1, 2) or not 2 * SHORTEST <= shape[0] <= LONGEST:
        return None
    return numbers.values.reshape(len(numbers.values), shape[0], -1)


def _hashes(windows: np.ndarray, start: int, length: int) -> np.ndarray:
    return row_hashes([windows[:, start : start + length]])


def _found(windows: np.ndarray, start: int, length: int, known: np.ndarray) -> np.ndarray:
    """Return a mask of the windows whose stretch is a known one; False for padding, and for an end that several windows share."""
    hashes = _hashes(windows, start, length)
    _, places, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    ordered = np.sort(windows[:, start : start + length].reshape(len(windows), -1), axis=1)
    different = (np.diff(ordered, axis=1) != 0).sum(axis=1) + 1
    found: np.ndarray = np.isin(hashes, known) & (counts[places] == 1) & (different >= SHORTEST // 2)
    return found
