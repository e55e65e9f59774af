"""The test by which a candidate must beat the baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from mltrainer.records.baseline import FoldRow
from mltrainer.records.common import Metrics
from mltrainer.tasks.statistics import fewest_pairs as fewest_pairs
from mltrainer.tasks.statistics import holm as holm
from mltrainer.tasks.statistics import spent_level
from mltrainer.workspace import plain

TEST = "exact sign-flip, one-sided"
POWER = 0.8  # the conventional one: Cohen, 1988, section 2.4
MAX_NEEDED = 1000  # pairs; an effect that takes more is none that a training shows
_NORMAL = statistics.NormalDist()
ROUNDING = 1e-9  # sums that differ by less than this share are equal: differences of equal counts differ in their last bits


def improvements(candidate: Sequence[Any], baseline: Sequence[Any], mode: str) -> list[float]:
    """Return the candidate's improvement on each seed; empty if a value is missing or not finite.

    Args:
        candidate: The metric on each seed, as records hold it: a run that failed has "nan" or None.
        baseline: The same for the baseline, on the same seeds.
        mode: "max" or "min": which direction is better.

    Raises:
        ValueError: The two do not have the same length.
    """
    pairs = list(zip(candidate, baseline, strict=True))
    # Nothing at all, and not the other pairs: a candidate that fails on hard seeds would be judged by the easy ones.
    if not all(isinstance(value, int | float) and math.isfinite(value) for pair in pairs for value in pair):
        return []
    sign = 1 if mode == "max" else -1
    return [sign * (new - old) for new, old in pairs]


def level_at(number: int | None, level: float) -> float:
    """Return the level that a comparison may spend, by its number; all of it if comparisons are not counted."""
    return level if number is None else spent_level(level, number)


def is_better(differences: list[float], seeds: int, level: float) -> bool:
    """Return True if the mean improvement is above zero and significant at the level, over enough seeds.

    Args:
        differences: One improvement for each seed.
        seeds: The smallest number of seeds.
        level: The largest p-value.
    """
    enough = len(differences) >= max(1, seeds)
    return enough and math.fsum(differences) > 0 and sign_flip_p_value(differences) <= level


def sign_flip_p_value(differences: list[float]) -> float:
    """Return the exact one-sided p-value of Fisher's sign-flip test that the mean difference is above zero.

    With n pairs the smallest value is 1 / 2**n (Fisher, 1935, The Design of Experiments, section 21). Flipping the signs of
    some differences leaves the sum as large where those that are flipped do not sum to more than zero.
    """
    limit = ROUNDING * math.fsum(map(abs, differences)) / 2
    sums = [0.0]
    for difference in differences:
        sums += [total + difference for total in sums]
    return sum(total <= limit for total in sums) / len(sums)


def over_folds(rows: Sequence[FoldRow]) -> tuple[Metrics, Metrics]:
    """Return the mean and the standard deviation of each metric over folds.

    The folds share most of what they train on, so the spread is no error of the mean, which no estimator gives without bias
    (Bengio and Grandvalet, 2004, JMLR 5:1089-1105).

    Returns:
        Nothing of a metric where a fold was not trained to its end.
    """
    if any(row.state != "finished" for row in rows):
        return {}, {}
    values = {name: [float(row.metrics[name]) for row in rows] for name in rows[0].metrics}
    means = {name: statistics.fmean(measured) for name, measured in values.items()}
    return plain(means), plain({name: statistics.stdev(measured) for name, measured in values.items()})


def interval(differences: Sequence[float], level: float) -> tuple[float, float] | None:
    """Return the exact confidence interval of the mean difference, at the confidence 1 - 2 * level.

    It holds the values that the sign-flip test does not reject, one-sidedly from either side, so that the test is passed
    where the interval is above zero. Its ends are order statistics of the means of all subsets (Hartigan, 1969, Using
    Subsample Values as Typical Values, JASA 64:1303-1317).

    Args:
        differences: One improvement for each seed.
        level: The level of the one-sided test.

    Returns:
        Both ends, or None where there are too few differences to bound the mean at the level.
    """
    nth = math.floor(level * 2 ** len(differences))
    if nth < 1 or not differences:
        return None
    limit = ROUNDING * math.fsum(map(abs, differences)) / 2
    subsets = [(0.0, 0)]
    for difference in differences:
        subsets += [(total + difference, size + 1) for total, size in subsets]
    # The same rounding as the test's, so that interval and p-value agree where a sum is zero but for its last bits.
    means = sorted(total / size if abs(total) > limit else 0.0 for total, size in subsets[1:])
    return means[nth - 1], means[-nth]


def effect_size(differences: Sequence[float]) -> float | None:
    """Return Cohen's d_z: the mean difference of pairs in standard deviations of the differences.

    Cohen, 1988, Statistical Power Analysis for the Behavioral Sciences, 2nd edition, section 2.3.5. Few pairs overstate it.

    Returns:
        None for fewer than two differences, and where all are equal.
    """
    if len(differences) < 2:
        return None
    spread = statistics.stdev(differences)
    # Equal differences leave a spread of rounding errors, by which the effect would be divided.
    return statistics.fmean(differences) / spread if spread > ROUNDING * max(map(abs, differences)) else None


def seeds_needed(effect: float | None, level: float, power: float = POWER) -> int | None:
    """Return the smallest number of pairs by which the test shows an effect of that size with that power.

    Normal differences are assumed. Where the test is passed by all differences above zero alone, as with five pairs at the
    level 0.05, the power is exact; with more pairs it is that of the t test, to which the sign-flip test comes close (Hoeffding,
    1952, The Large-Sample Power of Tests Based on Permutations of Observations), at the level that 2**n sums can reach, by the
    normal approximation with Guenther's correction (1981, Sample Size Formulas for Normal Theory T Tests, The American
    Statistician 35:243-244).

    Args:
        effect: Cohen's d_z.
        level: The level of the one-sided test.
        power: The probability to pass the test.

    Returns:
        None where there is no effect in the candidate's favour, or none is known, and for more than MAX_NEEDED.
    """
    if effect is None or effect <= 0:
        return None
    return next((pairs for pairs in range(1, MAX_NEEDED + 1) if _shows(pairs, effect, level, power)), None)


def _shows(pairs: int, effect: float, level: float, power: float) -> bool:
    # MAX_NEEDED keeps the power below 2.0**1024, which overflows.
    nth = math.floor(level * 2.0**pairs)
    if nth < 2:
        return nth == 1 and _NORMAL.cdf(effect) ** pairs >= power
    passing = _NORMAL.inv_cdf(1 - nth / 2.0**pairs)
    return pairs >= ((passing + _NORMAL.inv_cdf(power)) / effect) ** 2 + passing**2 / 2
