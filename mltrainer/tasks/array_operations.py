"""Operations on long arrays: hashes of rows and a sketch of them, distinct and common values, ranks, evenly spaced rows.

Values are sorted, as numpy's `unique` and `isin` hash them, which takes many times as long.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np

BLOCK = 1 << 15  # hashes that are mixed together: as many as the processor's cache holds
KEPT = 1024  # digests of a sketch
DIGEST_BYTES = 6


def row_hashes(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return a 64-bit hash of each row over several arrays of equal length, uint64.

    Numbers are mixed word by word as splitmix64 does (Steele, Lea and Flood, 2014, Fast splittable pseudorandom number
    generators); among a million rows, two that differ have equal hashes with a chance of 3 in 100 million.
    """
    found = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in parts:
        rows = np.ascontiguousarray(part).reshape(len(part), math.prod(part.shape[1:]))  # -1 knows no size of no rows
        # The bits, not the values: NaN equals NaN here, so rows with the same gaps are the same.
        words = rows.view(np.uint64) if rows.dtype.itemsize == 8 else rows.view(np.dtype(f"u{rows.dtype.itemsize}"))
        for word in words.T:
            found ^= word
            for start in range(0, len(found), BLOCK):
                _mix(found[start : start + BLOCK])
    return found


def _mix(words: np.ndarray) -> None:
    words += np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)


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


def evenly_spaced(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` evenly spaced rows of an array, the first and the last among them."""
    chosen: np.ndarray = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)]
    return chosen


def joint_counts(places: np.ndarray, labels: np.ndarray, values: int, classes: int) -> np.ndarray:
    """Return the number of rows of each value and class, int64 [values, classes]."""
    return np.bincount(places * classes + labels, minlength=values * classes).reshape(values, classes)


def ranks(values: np.ndarray) -> np.ndarray:
    """Return each value's rank; equal values have their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: np.ndarray = counts.cumsum() - (counts - 1) / 2
    return means[places]


def sketch(hashes: np.ndarray, salt: str) -> str:
    """Return the digests by which a test split is recognized in another state of the data: hex, sorted, with blanks between them.

    Of at most `KEPT` different rows every digest is kept, of more the smallest ones (a bottom-k sketch, Cohen and Kaplan, 2007,
    Summarizing data using bottom-k sketches): two splits with the share J of rows in common have about J times
    `KEPT` digests in common, so that half a percent is found with 99 in 100. Two different splits of twice `KEPT` rows have one
    in common by accident once in 100 million pairs.

    Args:
        hashes: A 64-bit hash of each row.
        salt: The project's salt, without which rows cannot be recognized among the digests.
    """
    key = hashlib.blake2b(salt.encode(), digest_size=32).digest()
    word = np.frombuffer(key[:8], dtype="<u8")
    rows = distinct(hashes)
    # The order is salted too: the smallest plain hashes would be the same rows in every project.
    order = row_hashes([np.broadcast_to(word, rows.shape).astype(np.uint64), rows.astype(np.uint64)])
    chosen = rows[np.argsort(order, kind="stable")[:KEPT]].astype("<u8")
    return " ".join(sorted(hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES, key=key).hexdigest() for row in chosen))
