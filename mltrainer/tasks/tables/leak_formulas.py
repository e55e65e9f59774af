"""Formulas of two columns that may give the target: the choice of those to judge on held-out rows.

All pairs of the most related columns are screened, in a few operations for a column and not in one for each pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from mltrainer.tasks.array_operations import evenly_spaced, joint_counts

MOST_COLUMNS = 40  # columns whose pairs are screened
SCREENED = 1000  # rows by which the promising formulas are chosen
MOST_JUDGED = 20  # formulas of each sort
LEAST_RELATED = 0.5  # the least R2 in the screened rows of a formula that may be near 1 on all
ROWS_PER_CELL = 5  # rows a cell of a table of one column's values by another's
CANCELLED = 1e-12  # the share of the columns' spread that counts as 0


Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Formula(NamedTuple):
    """A formula of two columns: their places, its name, and its values (int64 where they have no order)."""

    first: int
    second: int
    what: str
    values: np.ndarray


def formulas(columns: list[np.ndarray], target: np.ndarray, classes: int) -> Iterator[Formula]:
    """Yield the promising formulas of two columns, the most promising of each sort first.

    Args:
        columns: The values of all judged rows by column: float64 with NaN for missing, or int64 codes with -1.
        target: Class numbers, or quantities.
        classes: Number of classes; 0 for a quantity.
    """
    numbers = [place for place, values in enumerate(columns) if values.dtype == np.float64]
    if len(numbers) > 1:
        matrix = np.stack([columns[place] for place in numbers], axis=1)
        found = _of_classes(matrix, target) if classes else _of_quantity(matrix, target)
        yield from (one._replace(first=numbers[one.first], second=numbers[one.second]) for one in found)
    yield from _of_values(columns, target, classes)


# --- quantities ---


def _of_quantity(matrix: np.ndarray, target: np.ndarray) -> Iterator[Formula]:
    rows = evenly_spaced(np.arange(len(target)), SCREENED)
    few, wanted = _filled(matrix[rows]), target[rows]
    for what, weights in _SUMS.items():
        explained = _of_weights(few, wanted, *weights)
        yield from (_weighted(_slope(what, matrix, target, pair), matrix, pair, weights) for pair in _best(explained))
    positive = [place for place in range(matrix.shape[1]) if np.nanmin(matrix[:, place]) > 0]
    if (target > 0).all() and len(positive) > 1:
        logs = np.log(matrix[:, positive])
        for what, weights in _POWERS.items():
            explained = _of_weights(_filled(logs[rows]), np.log(wanted), *weights)
            found = (_weighted(what, logs, pair, weights) for pair in _best(explained, ordered=weights[0] != weights[1]))
            yield from (one._replace(first=positive[one.first], second=positive[one.second]) for one in found)
    for what, combine in _COMBINED.items():
        explained = np.stack([_correlated(combine(few[:, [place]], few), wanted) for place in range(few.shape[1])])
        pairs = _best(explained, ordered=what == "ratio")
        yield from (Formula(a, b, what, combine(matrix[:, a], matrix[:, b])) for a, b in pairs)


def _ratio(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    found: np.ndarray = first / np.where(second == 0, np.nan, second)
    return found


_COMBINED: dict[str, Combine] = {
    "product": lambda first, second: first * second,
    "ratio": _ratio,
    "smaller one": np.minimum,
    "larger one": np.maximum,
    "distance": lambda first, second: np.abs(first - second),
}
# Simple ones alone: an honest model of two strong columns has weights of any size.
_SUMS = {"sum": (1, 1), "difference": (1, -1)}
_POWERS = {
    "product": (1, 1),
    "ratio": (1, -1),
    "product, the second squared": (1, 2),
    "ratio, the second squared": (1, -2),
}  # exponents, the factors of the logarithms


def _weighted(what: str, matrix: np.ndarray, pair: tuple[int, int], weights: tuple[int, int]) -> Formula:
    first, second = pair
    return Formula(first, second, what, weights[0] * matrix[:, first] + weights[1] * matrix[:, second])


def _slope(what: str, matrix: np.ndarray, target: np.ndarray, pair: tuple[int, int]) -> str:
    """Return "mean" for a sum of which the target is half, in the rows that have both columns."""
    total = matrix[:, pair[0]] + matrix[:, pair[1]]
    known = ~np.isnan(total)
    is_half = what == "sum" and known.sum() > 1 and abs(np.polyfit(total[known], target[known], 1)[0] - 0.5) < 0.02
    return "mean" if is_half else what


def _of_weights(matrix: np.ndarray, target: np.ndarray, first: int, second: int) -> np.ndarray:
    """Return the squared correlation of the target with each two columns, weighted and added [first, second]."""
    centred, wanted = matrix - matrix.mean(axis=0), target - target.mean()
    own, among = centred.T @ wanted, centred.T @ centred
    size = among.diagonal()
    spread = first**2 * size[:, None] + second**2 * size[None, :] + 2 * first * second * among
    # The remainder of two copies that cancel each other is rounding.
    spread[spread <= CANCELLED * (size[:, None] + size[None, :])] = np.inf
    found: np.ndarray = (first * own[:, None] + second * own[None, :]) ** 2 / spread / (float(wanted @ wanted) or np.inf)
    return found


def _correlated(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the squared correlation of each column with the target; a missing value counts as the column's mean."""
    mean = np.nanmean(np.where(np.isnan(values).all(axis=0), 0.0, values), axis=0)
    centred, wanted = np.where(np.isnan(values), 0.0, values - mean), target - target.mean()
    spread = (centred**2).sum(axis=0) * (wanted**2).sum()
    found: np.ndarray = (wanted @ centred) ** 2 / np.where(spread == 0, np.inf, spread)
    return found


def _filled(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix with the median of its column in place of a missing value."""
    known = np.where(np.isnan(matrix).all(axis=0), 0.0, matrix)
    found: np.ndarray = np.where(np.isnan(known), np.nanmedian(known, axis=0), known)
    return found


def _best(explained: np.ndarray, ordered: bool = False) -> list[tuple[int, int]]:
    """Return the pairs that explain the most, the best first."""
    inside = ~np.eye(len(explained), dtype=bool) if ordered else np.triu(np.ones_like(explained, dtype=bool), 1)
    promising = np.where(inside & (explained >= LEAST_RELATED), explained, -1.0)
    order = np.argsort(-promising, axis=None, kind="stable")[:MOST_JUDGED]
    return [(int(nr // len(explained)), int(nr % len(explained))) for nr in order if promising.flat[nr] > 0]


# --- classes ---


def _of_classes(matrix: np.ndarray, labels: np.ndarray) -> Iterator[Formula]:
    """Yield the combinations along which the class changes least often."""
    rows = evenly_spaced(np.argsort(labels, kind="stable"), SCREENED)  # equal values are then together by class
    few = _filled(matrix[rows])
    for what, combine in _OF_CLASSES.items():
        changes = np.stack([_changes(combine(few[:, [place]], few), labels[rows]) for place in range(few.shape[1])])
        changes = np.where(np.triu(np.ones_like(changes, dtype=bool), 1), changes, len(rows))
        for nr in np.argsort(changes, axis=None, kind="stable")[:MOST_JUDGED]:
            a, b = int(nr // len(changes)), int(nr % len(changes))
            if changes[a, b] < len(rows) / 4:
                yield Formula(a, b, what, combine(matrix[:, a], matrix[:, b]))


_OF_CLASSES: dict[str, Combine] = {
    "difference": lambda first, second: first - second,
    "sum": lambda first, second: first + second,
    "product": lambda first, second: first * second,
    "ratio": _ratio,
}


def _changes(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    along = labels[np.argsort(values, axis=0, kind="stable")]
    found: np.ndarray = np.count_nonzero(along[1:] != along[:-1], axis=0)
    return found


# --- values together ---


def _of_values(columns: list[np.ndarray], target: np.ndarray, classes: int) -> Iterator[Formula]:
    """Yield the pairs of columns whose values together have the purest classes, or the least spread of the target."""
    coded = {place: codes for place, values in enumerate(columns) if (codes := _codes(values)) is not None}
    scored = []
    for first, second in combinations(coded, 2):
        (a, many), (b, more) = coded[first], coded[second]
        if many * more * ROWS_PER_CELL > len(target):
            continue
        cells = a * more + b
        scored.append((_purity(cells, many * more, target, classes), first, second, cells))
    scored.sort(key=lambda row: -row[0])
    yield from (Formula(a, b, "combination", cells) for purity, a, b, cells in scored[:MOST_JUDGED] if purity > LEAST_RELATED)


def _codes(values: np.ndarray) -> tuple[np.ndarray, int] | None:
    """Return each row's place among the distinct values, missing being one, and their number; None where they are too many."""
    if values.dtype == np.float64 and len(np.unique(values[:SCREENED])) > SCREENED / 10:
        return None
    distinct, places = np.unique(values, return_inverse=True)
    return (places, len(distinct)) if 1 < len(distinct) <= len(values) / (2 * ROWS_PER_CELL) else None


def _purity(cells: np.ndarray, count: int, target: np.ndarray, classes: int) -> float:
    """Return the share of rows in their cell's largest class, or of the target's variance between cells."""
    if classes:
        counts = joint_counts(cells, target, count, classes)
        return float(counts.max(axis=1).sum()) / len(cells)
    sizes = np.maximum(np.bincount(cells, minlength=count), 1)
    means = np.bincount(cells, target, minlength=count) / sizes
    return float((sizes * (means - target.mean()) ** 2).sum()) / (float(((target - target.mean()) ** 2).sum()) or np.inf)
