"""The same numbers in other units in two splits: their sizes and spreads are compared, far beyond chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mltrainer.tasks.array_operations import evenly_spaced
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.telling import CHANCE

FEWEST = 8  # values of each split; of fewer, quartiles say little
LOOKED_AT = 2_000  # values of each split, evenly spaced
NUMBERS = 20_011  # values, where each sample has many: a prime, so that they are from all places
TIMES = 5.0  # chosen by us: sizes and spreads that both differ by this factor between splits are no drift
UNIT = 2.0  # chosen by us: the factor that is enough where both differ by the same one; a kilogram is 2.2 pounds, an inch 2.54 cm
SAME = 1.25  # chosen by us: the factor by which these two may differ, as estimated from a hundred values
APART = 5.0  # chosen by us: medians apart by this many times the range of the middle half are no trend over both splits
END = 0.99  # the quantile of the sizes of all numbers above which are only a few outliers
SHOWN = 3  # features that are named
MEND = "are both in the same units? Scale both splits by what the training split tells"


class Scale(NamedTuple):
    """The median of some numbers, the median of their sizes, and the width of their middle half."""

    median: float
    size: float
    spread: float


def unit_findings(differ: Mapping[str, tuple[Scale, Scale]]) -> list[Finding]:
    """Return a warning on numbers that validation has in other units than training, by name; empty where there are none."""
    if not differ:
        return []
    shown = [
        f"{name}: median {one.median:.4g} in training and {two.median:.4g} in validation, middle halves {one.spread:.4g} and "
        f"{two.spread:.4g} wide"
        for name, (one, two) in list(differ.items())[:SHOWN]
    ]
    more = f"; and {len(differ) - SHOWN} more" if len(differ) > SHOWN else ""
    return [Finding("warning", f"validation has another scale than training: {'; '.join(shown)}{more}: {MEND}")]


def differing(train: Mapping[str, np.ndarray], held_out: Mapping[str, np.ndarray]) -> dict[str, tuple[Scale, Scale]]:
    """Return the scales of the numbers that have other units in the held-out samples, by name."""
    pairs = {name: other_units(values, held_out[name], len(train)) for name, values in train.items()}
    return {name: pair for name, pair in pairs.items() if pair is not None}


def other_units(train: np.ndarray, held_out: np.ndarray, looked_at: int = 1) -> tuple[Scale, Scale] | None:
    """Return the scales of the same numbers in two splits, where they have other units; None where they need not.

    Args:
        train: The values of training samples; NaN where missing.
        held_out: The values of validation samples.
        looked_at: Number of such pairs that are compared: the more, the further one is apart by chance.
    """
    one, other = _varied(_known(train), _known(held_out))
    # Around zero, a larger spread shows in the sizes alone.
    is_apart = is_beyond_chance(one, other, 2 * looked_at) or is_beyond_chance(abs(one), abs(other), 2 * looked_at)
    return _scales(one, other) if is_apart else None


def other_units_of_all(train: np.ndarray, held_out: np.ndarray) -> tuple[Scale, Scale] | None:
    """Return the scales of all numbers of samples, [samples, features], where those of held-out samples have other units.

    The test against chance uses the mean size of each sample's numbers, as these are not independent. In other units the
    largest numbers differ, too, which they do not between pictures with and without their background.
    """
    ends = [float(np.quantile(np.abs(_known(part.ravel(), NUMBERS)), END)) for part in (train, held_out)]
    if max(ends) < UNIT / SAME * min(ends):
        return None
    if not is_beyond_chance(_known(np.abs(train).mean(axis=1)), _known(np.abs(held_out).mean(axis=1)), 1):
        return None
    return _scales(*_varied(_known(train.ravel(), NUMBERS), _known(held_out.ravel(), NUMBERS)))


def _varied(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers without zeros, where these are most of them, as among pixels and counts."""
    is_flat = not all(len(values) and all(_scale(values)[1:]) for values in (one, other))
    return (one[one != 0], other[other != 0]) if is_flat else (one, other)


def _scales(one: np.ndarray, other: np.ndarray) -> tuple[Scale, Scale] | None:
    found = _scale(one), _scale(other)
    return found if _is_other(*found) else None


def _known(values: np.ndarray, most: int = LOOKED_AT) -> np.ndarray:
    chosen = evenly_spaced(values, most)
    known: np.ndarray = chosen[np.isfinite(chosen)]
    return known


def _scale(values: np.ndarray) -> Scale:
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return Scale(median, float(np.median(np.abs(values))), high - low)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two samples' shares up to a value (Kolmogorov and Smirnov), from 0 to 1."""
    both = np.sort(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(values), both, side="right") / len(values) for values in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def is_beyond_chance(one: np.ndarray, other: np.ndarray, looked_at: int = 1) -> bool:
    """Return True if two samples of one distribution would hardly be as far apart among `looked_at` pairs (Massart, 1990)."""
    if min(len(one), len(other)) < FEWEST:
        return False
    weight = len(one) * len(other) / (len(one) + len(other))
    return math.log(2 * looked_at) - 2 * distance(one, other) ** 2 * weight < math.log(CHANCE)


def _is_other(one: Scale, other: Scale) -> bool:
    if abs(one.median - other.median) >= APART * max(one.spread, other.spread):
        return True
    if 0 in (*one[1:], *other[1:]):
        return False
    times, sizes = math.log(other.spread / one.spread), math.log(other.size / one.size)
    if times * sizes < 0:
        return False
    least, most = sorted((abs(times), abs(sizes)))
    # Around zero size and spread measure the same: there the larger factor is needed.
    is_away = min(abs(part.median) / part.spread for part in (one, other)) > 1 / 2
    return least >= math.log(TIMES) or (is_away and least >= math.log(UNIT) and most - least <= math.log(SAME))
