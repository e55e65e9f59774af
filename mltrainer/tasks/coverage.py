"""The arithmetic of split conformal prediction, in whole numbers: the rank of the bounding score, and the odds of chance."""

from __future__ import annotations

import math
from fractions import Fraction

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
