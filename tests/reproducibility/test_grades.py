"""Grades of a reproduction: by bits, by numbers within a bound, by the spread of seeds, or none."""

from __future__ import annotations

import math

import pytest

from mltrainer.configs.items import GradeSettings
from mltrainer.reproducibility import grades
from mltrainer.reproducibility.fingerprint import Head, extend, step_entry, weights_entry
from mltrainer.reproducibility.grades import Numbers, grade, largest_loss_difference


def chain(*losses: float) -> list[str]:
    entries = [step_entry(number, "00" * 8, loss, 1.0) for number, loss in enumerate(losses, 1)]
    return extend(Head(), [weights_entry(0, "ab"), *entries])[1]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (Numbers(1e-6, 0.0), grades.NUMERICAL),
        (Numbers(1e-3, 1e-3), grades.NUMERICAL),
        (Numbers(1e-6, 0.082), grades.NOT),
        (Numbers(1e-6, 0.01, (0.90, 0.91, 0.92)), grades.STATISTICAL),
        (Numbers(1e-6, 0.2, metric_size=250.0), grades.NUMERICAL),
        (Numbers(1e-6, 0.3, metric_size=250.0), grades.NOT),
        (Numbers(1e-6, math.nan), grades.NOT),
        (Numbers(math.nan, 0.0), grades.NOT),
        (Numbers(2e-3, 0.0), grades.NOT),
        (Numbers(0.5, 0.01, (0.90, 0.91, 0.92)), grades.STATISTICAL),
        (Numbers(0.5, 0.03, (0.90, 0.91, 0.92)), grades.NOT),
        (Numbers(0.5, 0.0, (0.90, 0.91)), grades.NOT),
        (Numbers(math.nan, math.nan, (0.90, 0.91, 0.92)), grades.NOT),
    ],
)
def test_a_grade_follows_from_the_numbers(numbers, expected):
    assert grade(numbers, GradeSettings()) == expected


def test_the_pages_numbers_decide_the_grade():
    close = Numbers(1e-4, 0.02, (0.90, 0.91, 0.92))
    assert grade(Numbers(1e-4, 5e-5), GradeSettings(loss_bound=1e-4)) == grades.NUMERICAL
    assert grade(Numbers(1e-4, 2e-4), GradeSettings(loss_bound=1e-4)) == grades.NOT
    assert grade(close, GradeSettings(loss_bound=1e-5)) == grades.STATISTICAL
    assert grade(close, GradeSettings(loss_bound=1e-5, spread=1.5)) == grades.NOT
    assert grade(close, GradeSettings(loss_bound=1e-5, min_seeds=4)) == grades.NOT


def test_losses_are_compared_relative_to_their_size():
    assert largest_loss_difference(chain(2.0, 1.0), chain(2.0, 1.0)) == 0
    assert largest_loss_difference(chain(2.0, 1.0), chain(2.0, 0.5)) == 0.5
    assert largest_loss_difference(chain(2.0, 0.5), chain(2.0, 1.0)) == 0.5
    assert largest_loss_difference(chain(0.0), chain(1e-7)) == pytest.approx(0.1)  # what is as good as zero is compared to 1e-6


def test_runs_of_unequal_length_are_not_equal_in_numbers():
    assert largest_loss_difference(chain(2.0, 1.0), chain(2.0)) == math.inf
    assert largest_loss_difference([], []) == math.inf
