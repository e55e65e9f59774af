"""Shares of rows: their interval, and that of their difference, against published figures."""

from __future__ import annotations

import math
import random

import pytest

from mltrainer.tasks.statistics import SeedNoise, metric_verdict, seed_noise, share_difference, student_quantile, wilson


@pytest.mark.parametrize(
    ("hits", "rows", "expected"),
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)), (1, 29, (0.0061, 0.1718))],
)
def test_the_interval_of_a_share_is_that_of_newcombes_table(hits, rows, expected):
    assert wilson(hits / rows, rows, 1.959964) == pytest.approx(expected, abs=6e-5)  # Newcombe, 1998, 17:857-872, table I


@pytest.mark.parametrize(
    ("first", "second", "rows", "expected"),
    [(9, 3, 10, (0.1705, 0.8090)), (10, 0, 10, (0.6075, 1.0))],
)  # fmt: skip
def test_the_interval_of_a_difference_is_that_of_newcombes_table(first, second, rows, expected):
    found = share_difference(second / rows, first / rows, rows)
    assert found == pytest.approx(expected, abs=6e-5)  # Newcombe, 1998, 17:873-890, table II, method 10


def test_several_comparisons_widen_the_interval_as_bonferroni_does():
    (low, high), (wide_low, wide_high) = share_difference(0.5, 0.6, 100) or (0, 0), share_difference(0.5, 0.6, 100, 5) or (0, 0)
    assert (wide_high - wide_low) / (high - low) == pytest.approx(2.5758 / 1.96, rel=0.03)  # quantiles of 0.995 and 0.975


@pytest.mark.parametrize(("before", "after", "rows"), [(2.0, 0.5, 100), (0.5, -1.0, 100), (0.5, 0.6, 0)])
def test_what_is_no_share_has_no_interval(before, after, rows):
    assert share_difference(before, after, rows) is None


# Abramowitz and Stegun, 1964, table 26.10
@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (29, 2.045), (120, 1.980)]
)
def test_students_quantile_is_that_of_the_table(freedom, expected):
    assert student_quantile(0.975, freedom) == pytest.approx(expected, abs=5e-4)


def test_the_noise_of_seeds_is_pooled_over_configs_and_not_known_from_one_seed_each():
    assert seed_noise([[0.5], [0.7]]) is None
    noise = seed_noise([[0.0, 2.0], [10.0, 12.0], [5.0]])
    assert noise == SeedNoise(deviation=math.sqrt(2), freedom=2)
    assert noise is not None
    assert noise.least == pytest.approx(4.303 * 2, abs=1e-3)


def test_two_runs_of_one_config_are_called_different_in_one_of_twenty_cases():
    draws = random.Random(3)
    wrong = 0
    for _ in range(2000):
        noise = seed_noise([[draws.gauss(0, 1) for _ in range(4)]])
        verdict = metric_verdict("r2", "max", draws.gauss(0, 1), draws.gauss(0, 1), None, noise)["verdict"]
        wrong += verdict != "no clear difference"
    assert 70 <= wrong <= 130  # 100 are expected, with a deviation of 9.7
