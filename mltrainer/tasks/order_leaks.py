"""Features made from the targets of neighbouring rows in order of time, such as a centred rolling mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

IN_ORDER = 2_000  # the first rows, which are examined
REACH = 64  # rows before and after that a mean may span
TRIED = 3  # pairs of rows that explain the changes best
LEAST = 30  # changes that must be seen
LIKELY = 0.3  # share of the changes' squares, in a quick search
EXPLAINED = 0.7  # share of the changes' squares, by a mean whose edges differ at gaps
EXACT = 0.05  # share of the changes' spread that rounding may leave
MOST_OTHERS = 0.1  # share of the changes that may be others, as where another series begins


def made_of_neighbours(columns: Sequence[np.ndarray], target: np.ndarray, places: np.ndarray) -> dict[int, str]:
    """Return, by column, a sentence part on each feature that is made from the target of its row or of later rows.

    A mean over rows changes from a row to the next by the value that enters and that which leaves. So four
    known rows suffice, which a random split leaves, and not all rows of the mean are needed.

    Args:
        columns: The features, each float64 [rows]; NaN where a value is missing.
        target: The same rows' targets, numbers.
        places: The rows' places in the order of time; some may be missing.
    """
    if len(places) < LEAST or not np.isfinite(target).all():
        return {}
    at, count = places - places.min(), int(np.ptp(places)) + 1
    around = np.pad(_dense(target - target.mean(), at, count), REACH, constant_values=np.nan)
    targets = np.lib.stride_tricks.sliding_window_view(around, count - 1)[: 2 * REACH + 1]
    likely = _Likely(targets)
    changes = {number: np.diff(_dense(column, at, count)) for number, column in enumerate(columns)}
    told = {number: _made(one, targets) for number, one in changes.items() if likely.explains(one)}
    return {number: how for number, how in told.items() if how is not None}


def _dense(values: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    found = np.full(count, np.nan)
    found[at] = values
    return found


def _mean(values: np.ndarray) -> float:
    """Return the mean of the numbers that are known; NaN where none is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else np.nan


class _Likely:
    """A quick test of changes that may be explained, by one row's targets at a time; it takes a thousandth of the time."""

    def __init__(self, targets: np.ndarray) -> None:
        self._known = np.isfinite(targets)
        self._held = np.where(self._known, targets, 0.0)
        middle = targets[REACH]
        steps = [_mean((middle[lag:] - middle[: max(0, len(middle) - lag)]) ** 2) for lag in range(2 * REACH + 1)]
        rows = np.arange(len(targets))
        self._squares = np.array(steps)[np.abs(rows[:, None] - rows)]

    def explains(self, changes: np.ndarray) -> bool:
        finite = np.isfinite(changes)
        moved = np.where(finite, changes, 0.0)
        seen = self._known @ finite.astype(np.float64)
        together = np.where(seen >= LEAST, self._held @ moved / np.maximum(seen, 1), 0.0)
        power = (moved**2).sum() / max(1, finite.sum())
        scale = self._squares * power
        return bool(((together[:, None] - together) ** 2 / np.where(scale > 0, scale, np.inf)).max() >= LIKELY)


def _made(changes: np.ndarray, targets: np.ndarray) -> str | None:
    explained = _explained(changes, targets)
    enters, leaves = np.tril_indices(len(targets), -1)
    is_honest = enters <= REACH  # made from earlier rows alone; a target that repeats itself looks the same
    scores = explained[enters, leaves]
    if scores[is_honest].max() > 1 - EXACT**2:
        return None
    for pair in np.argsort(scores, kind="stable")[::-1][:TRIED]:
        first, end = int(leaves[pair]), int(enters[pair])
        if scores[pair] >= EXPLAINED and _is_scaled(changes, targets[end] - targets[first]):
            return _told(first - REACH, end - REACH)
    return None


def _explained(changes: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the share of the changes' squares that is a multiple of the difference of two rows' targets [enters, leaves]."""
    known = np.isfinite(targets) & np.isfinite(changes)
    held, moved = np.where(known, targets, 0.0), np.where(np.isfinite(changes), changes, 0.0)
    mask = known.astype(np.float64)
    together = (held * moved) @ mask.T
    squares = held**2 @ mask.T
    differences = squares + squares.T - 2 * held @ held.T
    whole = (mask * moved**2) @ mask.T
    scale = differences * whole
    is_seen = (mask @ mask.T >= LEAST) & (scale > 1e-12 * scale.max(initial=0.0))
    found: np.ndarray = np.where(is_seen, (together - together.T) ** 2 / np.where(is_seen, scale, 1.0), 0.0)
    return found


def _is_scaled(changes: np.ndarray, differences: np.ndarray) -> bool:
    """Return True if nearly all changes are the differences times a number."""
    known = np.isfinite(changes) & np.isfinite(differences) & ((changes != 0) | (differences != 0))
    moved = known & (differences != 0)
    if moved.sum() < LEAST:
        return False
    factor = np.median(changes[moved] / differences[moved])
    left = np.abs(changes[known] - factor * differences[known])
    return bool((left > EXACT * changes[known].std()).mean() <= MOST_OTHERS)


def _told(first: int, end: int) -> str | None:
    """Return a description of a mean over the rows from the first one to before the end, counted from the feature's row."""
    count, last = end - first, end - 1
    if count == 1:
        return {0: None, 1: "is the target of the next row in time"}.get(last, f"is the target {last} rows later in time")
    return f"is the mean of the target over {count} rows in time, {'later ones' if last > 0 else 'its own'} among them"
