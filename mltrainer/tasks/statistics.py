"""Intervals of shares of rows, p-values corrected for several comparisons, and the arithmetic of conformal prediction."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
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


def metric_verdict(name: str, mode: str, before: float, after: float, count: int | None) -> dict[str, Any]:
    """Return the verdict on a metric's difference of two runs: one seed each, so that only the rows show chance.

    Args:
        name: The metric.
        mode: "max" or "min".
        before: The metric of the first run; finite.
        after: The metric of the second run; finite.
        count: The number of rows that each was measured on; None where it is not known, or differs.

    Returns:
        `difference` (second less first), its confidence `interval` and `samples` (these two None where the metric
        is no share of rows), and `verdict`: same, better, worse or "no clear difference".
    """
    samples = count if count and name in SHARES else None
    ends = share_difference(before, after, samples) if samples else None
    if before == after:
        verdict = "same"
    elif ends is None or ends[0] <= 0 <= ends[1]:
        verdict = "no clear difference"
    else:
        verdict = "better" if (after > before) == (mode == "max") else "worse"
    return {"difference": after - before, "samples": samples, "interval": list(ends) if ends else None, "verdict": verdict}


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
