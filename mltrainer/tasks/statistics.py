"""Intervals of shares of rows, p-values corrected for several comparisons, and the arithmetic of conformal prediction."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

SHARES = ("accuracy",)  # metrics that are a share of correct rows
BOUNDS: dict[str, tuple[float | None, float | None]] = {  # of the built-in tasks' metrics, by the beginning of their names
    **dict.fromkeys(("accuracy", "f1_macro", "balanced_accuracy", "roc_auc", "average_precision", "calibration_error"), (0, 1)),
    **dict.fromkeys(("loss", "log_loss", "rmse", "mae", "bits_per_byte"), (0, None)),
    "perplexity": (1, None),
    "r2": (None, 1),
}
NORMAL_95 = 1.959964  # the normal quantile of a 95 % interval
LEVEL = 0.05  # Fisher's conventional level, two-sided


def wilson(share: float, count: int, z: float) -> tuple[float, float]:
    """Return the interval of a share (Wilson, 1927, Journal of the American Statistical Association 22:209-212).

    Args:
        share: The share, from 0 to 1.
        count: The number of rows.
        z: The normal quantile of the confidence.
    """
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return centre - half, centre + half


def share_difference(
    before: float, after: float, count: int, comparisons: int = 1, after_count: int | None = None
) -> tuple[float, float] | None:
    """Return the confidence interval of the difference of two shares of rows.

    Newcombe, 1998, Interval Estimation for the Difference Between Independent Proportions, Statistics in Medicine 17:873-890,
    method 10. The same rows answered by both agree more than independent ones, so that the interval is rather too wide.

    Args:
        before: The first share.
        after: The second share, from which the first is subtracted.
        count: The number of rows of each.
        comparisons: Number of comparisons, which divide the level (Bonferroni).
        after_count: The number of rows of the second, where it differs.

    Returns:
        Both ends; None where the two are no shares of any rows.
    """
    others = count if after_count is None else after_count
    if min(count, others) < 1 or not (0 <= before <= 1 and 0 <= after <= 1):
        return None
    z = statistics.NormalDist().inv_cdf(1 - LEVEL / (2 * comparisons))
    (low_before, high_before), (low_after, high_after) = wilson(before, count, z), wilson(after, others, z)
    down = math.hypot(after - low_after, high_before - before)
    up = math.hypot(high_after - after, before - low_before)
    return after - before - down, after - before + up


@dataclass(frozen=True)
class SeedNoise:
    """The spread of a metric among runs of one config that differ in their seed alone.

    Attributes:
        deviation: The standard deviation of a single run, pooled over configs.
        freedom: Its degrees of freedom: the number of these runs less the number of their configs.
    """

    deviation: float
    freedom: int

    @property
    def least(self) -> float:
        """The difference of two runs, one seed each, that chance alone exceeds in one of twenty cases, if values are normal."""
        return student_quantile(1 - LEVEL / 2, self.freedom) * math.sqrt(2) * self.deviation


def seed_noise(groups: Iterable[Sequence[float]]) -> SeedNoise | None:
    """Return the noise of seeds; None where no config was trained on two of them.

    Args:
        groups: For each config the metric of its runs, a run for each seed.
    """
    known = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in known)
    squares = math.fsum(statistics.variance(values) * (len(values) - 1) for values in known)
    return SeedNoise(math.sqrt(squares / freedom), freedom) if freedom else None


def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution above its median, to 1e-9 of its size.

    By halving an interval of its distribution function, which is a finite sum: Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4.
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < 2 * probability - 1:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 2 * probability - 1 else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    square, is_odd = math.cos(angle) ** 2, freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for step in range(freedom // 2):
        total += term
        term *= square * (2 * step + 1 + is_odd) / (2 * step + 2 + is_odd)
    return 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total


def metric_verdict(
    name: str, mode: str, before: float, after: float, count: int | None, noise: SeedNoise | None = None
) -> dict[str, Any]:
    """Return the verdict on a metric's difference of two runs of one seed each.

    It is never "better" where the noise of seeds is not known: the rows show one part of chance alone.

    Args:
        name: The metric.
        mode: "max" or "min".
        before: The metric of the first run; finite.
        after: The metric of the second run; finite.
        count: The number of rows that each was measured on; None where it is not known, or differs.
        noise: The noise of seeds; None where no config was trained on several.

    Returns:
        `difference` (second less first), its confidence `interval` and `samples` (these two None where the metric
        is no share of rows), `least` (the least difference that seeds do not explain; None where that is not known), and
        `verdict`: same, better, worse or "no clear difference".
    """
    difference = after - before
    samples = count if count and name in SHARES else None
    ends = share_difference(before, after, samples) if samples else None
    if before == after:
        verdict = "same"
    elif noise is None or abs(difference) < noise.least or (ends is not None and ends[0] <= 0 <= ends[1]):
        verdict = "no clear difference"
    else:
        verdict = "better" if (after > before) == (mode == "max") else "worse"
    found = {"difference": difference, "samples": samples, "interval": list(ends) if ends else None, "verdict": verdict}
    return {**found, "least": noise.least if noise else None}


FIRST_SHARE = 5 / 8  # of a level, for the first comparison: of 0.05 it is the least p-value of five pairs, 1/32
MAX_PAIRS = 1000  # nobody trains more of them


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple comparisons: at most the probability that luck alone gives any that is as small.

    Holm, 1979, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 6:65-70. It holds
    however the comparisons depend on one another, as those with one config in common do.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    found, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[place])
        found[place] = min(1.0, largest)
    return found


def spent_level(level: float, number: int) -> float:
    """Return the level of one comparison, by its number, in a series that ends when one is passed.

    The first spends five eighths of the level, each later one half of the rest. The shares add up to less than the level,
    so that in a series of any length luck alone passes one with at most that probability (the union bound; spending a level over
    repeated tests: Lan and DeMets, 1983, Discrete Sequential Boundaries for Clinical Trials, Biometrika 70:659-663).

    Args:
        level: The level of the whole series.
        number: The comparison's number, from 1.
    """
    return level * FIRST_SHARE if number == 1 else level * (1 - FIRST_SHARE) * 0.5 ** (number - 1)


def fewest_pairs(level: float, comparisons: int = 1) -> int:
    """Return the least number of pairs with which the sign-flip test can be passed at a level, among several comparisons."""
    return next(pairs for pairs in range(1, MAX_PAIRS) if comparisons * 0.5**pairs <= level)


NEGLIGIBLE = 1e-16  # a term of a sum that is smaller than this share of it changes no digit


def rank(coverage: float, samples: int) -> int:
    """Return the rank of the score that bounds, from the best fitting of `samples`; above `samples` where those are too few.

    The finite-sample correction of the quantile: ceil((n + 1) * coverage) (Vovk, Gammerman and Shafer, 2005; Lei et al., 2018,
    Distribution-Free Predictive Inference for Regression, JASA 113:1094-1111). In floats 0.55 * 100 is more than 55.
    """
    return math.ceil(Fraction(str(coverage)) * (samples + 1))


def fewest_samples(coverage: float) -> int:
    """Return the fewest calibration samples that bound a coverage at all."""
    return math.ceil(Fraction(str(coverage)) / (1 - Fraction(str(coverage))))


def chance(covered: int, tested: int, place: int, calibrated: int) -> float:
    """Return the probability of at most `covered` covered samples where the promised coverage holds.

    Over calibration and test splits from one distribution the count is beta-binomial, with the shapes `place` and
    `calibrated + 1 - place` (Vovk, 2012, Conditional Validity of Inductive Conformal Predictors; Angelopoulos and Bates, 2023,
    Conformal Prediction: A Gentle Introduction, section 3.2), which accounts for the size of the calibration split, too.
    Scores with ties, and sets that are filled up, cover more often.

    Args:
        covered: Number of tested samples that are covered.
        tested: Number of tested samples.
        place: The rank of the score that bounds, from `rank`; at most `calibrated`.
        calibrated: Number of calibration samples.
    """
    if covered >= tested:
        return 1.0
    a, b = place, calibrated + 1 - place
    if covered * (a + b) >= tested * a:
        return 1 - _below(tested - covered - 1, tested, b, a)
    return _below(covered, tested, a, b)


def _below(count: int, tested: int, a: int, b: int) -> float:
    """Return the beta-binomial probability of at most `count`, itself at most about the mean, as a sum of terms downwards."""
    if count < 0:
        return 0.0
    log = math.lgamma
    ways = log(tested + 1) - log(count + 1) - log(tested - count + 1)
    term = math.exp(ways + log(count + a) + log(tested - count + b) - log(tested + a + b) - log(a) - log(b) + log(a + b))
    total = 0.0
    for k in range(count, -1, -1):
        total += term
        if term < NEGLIGIBLE * total or k == 0:
            break
        # The quotient of two neighbouring terms, which needs no logarithms.
        term *= k * (tested - k + b) / ((tested - k + 1) * (k - 1 + a))
    return min(1.0, total)
