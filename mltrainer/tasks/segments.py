"""Segments of the samples on which a model is wrong more often than on the rest: the values of one column at a time.

The method is that of Slice Finder (Chung et al., 2019, arXiv 1807.06068) for slices of one column: a segment counts where a
test shows it to be worse than all other samples, corrected for the number of segments; segments with few samples are not tested.
The tests are exact or by ranks, so that a few large errors do not make a segment.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mltrainer.records.run import Segment, Segments
from mltrainer.tasks.array_operations import evenly_spaced
from mltrainer.tasks.calibration import wilson
from mltrainer.tasks.statistics import NORMAL_95, holm

FEWEST_SAMPLES = 20  # the least number in a segment, and outside of it
LEVEL = 0.05  # the level of all tests together
PARTS = 5  # ranges into which numbers are cut, of equally many samples
FEW_VALUES = 10  # the most values of a column of numbers of which each is a segment
MOST_VALUES = 20  # the most frequent values of a category, each a segment
MOST_FEATURES = 200  # columns
MOST_SAMPLES = 20_000  # evenly spaced: enough for any segment that matters, in a second or two
MOST_ROWS = 10  # rows of a report
LONGEST = 60  # characters of a value

Group = tuple[str, np.ndarray]


@dataclass(frozen=True)
class SegmentFeature:
    """A feature of all samples, by which their errors are grouped.

    Attributes:
        name: The name of a column or of a measurement.
        values: The samples' values, float64 with NaN for missing; or int64, places in `texts`, -1 for missing.
        texts: The texts of a category.
        is_date: Whether the values are seconds since 1970.
    """

    name: str
    values: np.ndarray
    texts: Sequence[str] = field(default_factory=list)
    is_date: bool = False

    def groups(self) -> Iterator[Group]:
        """Yield the values, or ranges of values, each with the mask of its samples."""
        missing = np.isnan(self.values) if self.values.dtype == np.float64 else self.values < 0
        yield "missing", missing
        present, counts = np.unique(self.values[~missing], return_counts=True)
        if self.values.dtype == np.float64 and len(present) > FEW_VALUES:
            yield from self._ranges(self.values[~missing])
            return
        for place in np.argsort(-counts, kind="stable")[:MOST_VALUES]:
            yield self._text(present[place]), self.values == present[place]

    def _ranges(self, present: np.ndarray) -> Iterator[Group]:
        edges = np.unique(np.quantile(present, np.arange(1, PARTS) / PARTS))
        places = np.searchsorted(edges, self.values, side="left")
        # NaN is sorted behind all edges, among the largest values.
        places[np.isnan(self.values)] = -1
        named = [self._text(edge) for edge in edges]
        names = [f"up to {named[0]}", *(f"{a} to {b}" for a, b in itertools.pairwise(named)), f"above {named[-1]}"]
        yield from ((name, places == place) for place, name in enumerate(names))

    def _text(self, value: Any) -> str:
        if self.values.dtype != np.float64:
            return str(self.texts[int(value)])[:LONGEST]
        return str(np.datetime64(int(value), "s")) if self.is_date else f"{value:.4g}"


def segments(errors: np.ndarray, features: Sequence[SegmentFeature], measure: str) -> Segments | None:
    """Return the segments whose errors are larger than those of all other samples; None where there are too few to compare.

    Args:
        errors: The error of each sample: 0 or 1, or a distance; of more than `MOST_SAMPLES`, evenly spaced ones are used.
        features: The features that make the segments.
        measure: The name of the errors' measure.

    Returns:
        The segments with a `p`, corrected by Holm's method, that is small enough, the worst first; `low` and `high` are the ends
        of the mean error's 95 % interval.
    """
    if len(errors) < 2 * FEWEST_SAMPLES or not np.isfinite(errors).all():
        return None
    if len(errors) > MOST_SAMPLES:
        places = evenly_spaced(np.arange(len(errors)), MOST_SAMPLES)
        errors, features = errors[places], [replace(feature, values=feature.values[places]) for feature in features]
    test = _exact(errors) if set(np.unique(errors)) <= {0.0, 1.0} else _ranked(errors)
    tested = [(feature.name, *group) for feature in features[:MOST_FEATURES] for group in _large(feature.groups(), len(errors))]
    # All that were tested are corrected together, before any is left out.
    p_values = holm([test(inside) for _, _, inside in tested])
    rows = [
        _Segment(name, value, *_measured(errors, inside), p)
        for (name, value, inside), p in zip(tested, p_values, strict=True)
        if p <= LEVEL
    ]
    # Sorted by the total error that it adds: a tiny segment that is far off does not hide a large one.
    rows.sort(key=lambda row: (-(row.error - row.rest) * row.samples, row.p))
    return Segments.model_construct(
        measure=measure,
        overall=float(errors.mean()),
        samples=len(errors),
        tested=len(tested),
        level=LEVEL,
        fewest=FEWEST_SAMPLES,
        found=len(rows),
        rows=[Segment.model_construct(**row._asdict()) for row in rows[:MOST_ROWS]],
    )


def _large(groups: Iterator[Group], total: int) -> Iterator[Group]:
    return ((name, inside) for name, inside in groups if FEWEST_SAMPLES <= inside.sum() <= total - FEWEST_SAMPLES)


class _Segment(NamedTuple):
    """Samples with one value of a column, whose errors are larger than those of the rest; `p` is corrected."""

    column: str
    value: str
    samples: int
    error: float
    low: float
    high: float
    rest: float
    p: float


def _measured(errors: np.ndarray, inside: np.ndarray) -> tuple[int, float, float, float, float]:
    """Return the number of samples, their mean error with the ends of its interval, and the mean of the rest."""
    mine = errors[inside]
    mean = float(mine.mean())
    half = NORMAL_95 * float(mine.std(ddof=1)) / math.sqrt(len(mine))
    binary = set(np.unique(errors)) <= {0.0, 1.0}
    low, high = wilson(int(mine.sum()), len(mine)) if binary else (max(0.0, mean - half), mean + half)
    return len(mine), mean, low, high, float(errors[~inside].mean())


# --- tests ----------------------------------------------------------------------------------------


def _exact(errors: np.ndarray) -> Any:
    """Return Fisher's exact test, one-sided: the probability of as many errors in a segment by luck (Fisher, 1922)."""
    total, wrong = len(errors), int(errors.sum())
    # Factorials by their logarithms, once for all segments: those of thousands of samples overflow.
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, total + 1)))])

    def choose(n: int, k: np.ndarray) -> np.ndarray:
        found: np.ndarray = logs[n] - logs[k] - logs[n - k]
        return found

    def p_value(inside: np.ndarray) -> float:
        size, hits = int(inside.sum()), int(errors[inside].sum())
        counts = np.arange(hits, min(size, wrong) + 1)
        # No segment can hold more right samples than there are.
        counts = counts[size - counts <= total - wrong]
        terms = choose(wrong, counts) + choose(total - wrong, size - counts) - choose(total, np.array(size))
        return min(1.0, float(np.exp(terms).sum()))

    return p_value


def _ranked(errors: np.ndarray) -> Any:
    """Return the rank-sum test, one-sided, by the normal approximation with ties (Mann and Whitney, 1947)."""
    _, place, counts = np.unique(errors, return_inverse=True, return_counts=True)
    total, ends = len(errors), np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / (total * (total - 1))

    def p_value(inside: np.ndarray) -> float:
        size = int(inside.sum())
        above = float(ranks[inside].sum()) - size * (total + 1) / 2
        spread = math.sqrt(size * (total - size) / 12 * (total + 1 - ties))
        # Ranks alone can be larger where the mean is smaller; means are reported.
        larger = errors[inside].mean() > errors[~inside].mean()
        return 0.5 * math.erfc(above / spread / math.sqrt(2)) if spread and larger else 1.0

    return p_value
