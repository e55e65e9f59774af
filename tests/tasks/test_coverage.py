"""The arithmetic of conformal prediction against exact fractions, and the beta-binomial distribution of another library."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.tasks.statistics import chance, fewest_samples, rank

stats = pytest.importorskip("scipy.stats")


def exactly(covered: int, tested: int, place: int, calibrated: int) -> Fraction:
    """Of all orders in which tested and calibrating rows may come, the share in which so few tested ones, or fewer, are covered.

    A tested row is covered where it comes before the calibrating one in that place; k do in comb(k + place - 1, k) ways.
    """
    after = calibrated - place
    ways = [comb(k + place - 1, k) * comb(tested - k + after, after) for k in range(tested + 1)]
    return Fraction(sum(ways[: covered + 1]), sum(ways))


@pytest.mark.parametrize(
    ("coverage", "samples", "place"), [(0.9, 9, 9), (0.9, 99, 90), (0.9, 100, 91), (0.55, 99, 55), (0.95, 358, 342), (0.9, 8, 9)]
)
def test_the_quantile_has_the_correction_for_finite_samples(coverage, samples, place):
    assert rank(coverage, samples) == place


@given(st.integers(50, 999))
def test_the_fewest_samples_are_the_first_that_bound_a_coverage(thousandths):
    coverage = thousandths / 1000
    fewest = fewest_samples(coverage)
    assert rank(coverage, fewest) <= fewest
    assert fewest == 1 or rank(coverage, fewest - 1) > fewest - 1


@given(st.integers(1, 40), st.data())
def test_the_chance_is_the_share_of_all_orders(calibrated, data):
    place, tested = data.draw(st.integers(1, calibrated)), data.draw(st.integers(1, 40))
    covered = data.draw(st.integers(0, tested))
    assert chance(covered, tested, place, calibrated) == pytest.approx(
        float(exactly(covered, tested, place, calibrated)), abs=1e-12
    )


@pytest.mark.parametrize("calibrated", [99, 5000, 200_000])
@pytest.mark.parametrize("tested", [100, 30_000, 1_000_000])
@pytest.mark.parametrize("share", [0.85, 0.89, 0.9, 0.93])
def test_the_chance_is_beta_binomial(calibrated, tested, share):
    place, covered = rank(0.9, calibrated), math.floor(share * tested)
    expected = float(stats.betabinom(tested, place, calibrated + 1 - place).cdf(covered))
    assert chance(covered, tested, place, calibrated) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_all_covered_is_never_too_few():
    assert chance(10, 10, 9, 9) == 1.0
    assert chance(0, 10, 9, 9) < 1e-4
