"""The comparison's statistics: interval and test agree, what is needed is what simulations need, and noise is not promoted."""

from __future__ import annotations

import random
import statistics

import pytest

from mltrainer.gates.statistics import effect_size, improvements, interval, is_better, over_folds, seeds_needed, sign_flip_p_value
from mltrainer.records.baseline import FoldRow
from mltrainer.records.partial import partial
from tests.benchmarks.bench_promotion import LEVEL, promoted_share, trials_share


def drawn(kind: str, draw: random.Random) -> list[float]:
    """Return up to eight differences: of any size, or of counts out of 360, which tie and cancel."""
    one = {"real": lambda: draw.gauss(0.5, 1.0), "counts": lambda: draw.randint(-3, 5) / 360}[kind]
    return [one() for _ in range(draw.randint(1, 8))]


@pytest.mark.parametrize("kind", ["real", "counts"])
@pytest.mark.parametrize("level", [0.05, 0.1, 0.25])
def test_the_test_is_passed_where_the_interval_lies_above_zero(kind, level):
    draw = random.Random(7)
    for _ in range(300):
        differences = drawn(kind, draw)
        ends, passed = interval(differences, level), sign_flip_p_value(differences) <= level
        assert passed == (ends is not None and ends[0] > 0), differences


def test_the_interval_holds_exactly_the_means_that_the_test_does_not_reject():
    differences = [0.3, -0.1, 0.8, 0.45, 0.2, 0.6, 0.05]
    ends = interval(differences, 0.05)
    for mean, inside in ((ends[0] - 1e-6, False), (ends[0] + 1e-6, True), (ends[1] - 1e-6, True), (ends[1] + 1e-6, False)):
        above, below = ([sign * (d - mean) for d in differences] for sign in (1, -1))
        assert (min(map(sign_flip_p_value, (above, below))) > 0.05) == inside


def test_five_seeds_are_bounded_by_their_worst_and_best_and_four_by_nothing():
    assert interval([0.1, 0.4, 0.2, 0.5, 0.3], 0.05) == (0.1, 0.5)
    assert interval([0.1, 0.4, 0.2, 0.5], 0.05) is None
    assert interval([], 0.05) is None


def test_the_interval_covers_the_true_mean_at_least_as_often_as_it_says():
    draw, covered = random.Random(3), 0
    for _ in range(1000):
        ends = interval([draw.gauss(1.0, 2.0) for _ in range(6)], 0.05)
        covered += ends[0] <= 1.0 <= ends[1]
    assert 0.88 <= covered / 1000 <= 0.93


def test_the_effect_is_the_mean_in_standard_deviations_of_the_differences():
    assert effect_size([1.0, 2.0, 3.0]) == pytest.approx(2.0)
    assert effect_size([0.1, 0.1, 0.1]) is None
    assert effect_size([0.1]) is None


def test_an_effect_against_the_candidate_needs_no_seeds():
    assert seeds_needed(-0.5, 0.05) is None
    assert seeds_needed(None, 0.05) is None
    assert seeds_needed(10.0, 0.05) == 5  # no fewer can pass the exact test


@pytest.mark.parametrize("effect", [0.8, 1.0, 1.8])
def test_as_many_seeds_as_are_said_to_be_needed_show_the_effect_as_often_as_is_said(effect):
    needed, draw = seeds_needed(effect, LEVEL), random.Random(11)
    assert needed is not None
    found = [is_better([draw.gauss(effect, 1.0) for _ in range(needed)], needed, LEVEL) for _ in range(300)]
    assert statistics.fmean(found) == pytest.approx(0.8, abs=0.06)


def test_an_effect_that_five_seeds_would_miss_needs_a_sixth():
    assert [seeds_needed(effect, 0.05) for effect in (3.0, 1.8, 1.5, 0.01)] == [5, 5, 6, None]


def test_of_200_studies_of_pure_noise_at_most_one_in_twenty_is_promoted():
    assert promoted_share(studies=200, effect=0.0) <= LEVEL
    assert trials_share(studies=200) > 0.9  # by its own trial's value nearly every one would be


def test_a_real_effect_is_promoted_and_more_seeds_promote_it_more_often():
    few, many = (promoted_share(studies=200, effect=1.0, seeds=seeds) for seeds in (5, 8))
    assert 0.3 < few < many < 0.95


def test_improvements_are_positive_where_the_candidate_is_better():
    assert improvements([0.4], [0.5], "min") == [pytest.approx(0.1)]
    assert improvements([0.4, "nan"], [0.5, 0.5], "max") == []


def test_the_mean_and_the_spread_over_folds_are_those_of_a_sample():
    """Of 1, 2 and 4 the mean is 7/3 and the variance 7/3, as divided by one less than their number."""
    rows = [{"state": "finished", "metrics": {"loss": value, "accuracy": 0.5}} for value in (1.0, 2.0, 4.0)]
    folds = [partial(FoldRow, row) for row in rows]
    metrics, spread = over_folds(folds)
    assert metrics == pytest.approx({"loss": 7 / 3, "accuracy": 0.5})
    assert spread == pytest.approx({"loss": (7 / 3) ** 0.5, "accuracy": 0.0})
    assert over_folds([*folds, partial(FoldRow, {"state": "failed", "metrics": {}})]) == ({}, {})
