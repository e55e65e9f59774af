"""Segments: found where errors are planted, seldom where they are not, and never of few rows."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from mltrainer.tasks.calibration import wilson
from mltrainer.tasks.segments import FEWEST_SAMPLES, LEVEL, MOST_ROWS, MOST_SAMPLES, SegmentFeature, segments

ROWS = 600


def table(seed: int) -> tuple[np.random.Generator, list[SegmentFeature]]:
    draw = np.random.default_rng(seed)
    cities = SegmentFeature("city", draw.integers(0, 4, ROWS), ["Bern", "Lima", "Oslo", "Rome"])
    return draw, [cities, *(SegmentFeature(f"x{nr}", draw.normal(size=ROWS)) for nr in range(8))]


def found(errors: np.ndarray, features: list[SegmentFeature], measure: str = "error rate") -> dict:  # type: ignore[type-arg]
    result = segments(errors, features, measure)
    assert result is not None
    return result


def test_a_city_of_many_errors_is_found_with_counts_and_interval():
    draw, features = table(1)
    wrong = (draw.random(ROWS) < np.where(features[0].values == 1, 0.4, 0.1)).astype(float)
    (row,) = found(wrong, features).rows
    inside = features[0].values == 1
    assert (row.column, row.value, row.samples) == ("city", "Lima", inside.sum())
    assert (row.error, row.rest) == (wrong[inside].mean(), wrong[~inside].mean())
    assert (row.low, row.high) == wilson(int(wrong[inside].sum()), int(inside.sum()))
    assert row.p < 1e-6


def test_a_range_of_a_number_is_found_by_how_far_predictions_are_off():
    draw, features = table(2)
    off = np.abs(draw.standard_t(2, ROWS)) * np.where(features[3].values > np.quantile(features[3].values, 0.8), 4, 1)
    result = found(off, features, "absolute error")
    assert [(row.column, row.value[:5]) for row in result.rows] == [("x2", "above")]


def test_where_errors_lie_anywhere_a_segment_is_found_in_a_twentieth_of_the_tables_at_most():
    by_luck = 0
    for seed in range(25):
        draw, features = table(seed)
        by_luck += bool(found((draw.random(ROWS) < 0.1).astype(float), features).found)
        by_luck += bool(found(np.abs(draw.standard_t(2, ROWS)), features).found)
    assert by_luck / 50 <= LEVEL


def test_a_p_value_is_the_exact_one():
    wrong = np.zeros(60)
    wrong[:10] = 1.0
    codes = np.where(np.arange(60) < 20, 0, 1)  # all ten errors are among the first twenty
    result = found(wrong, [SegmentFeature("half", codes, ["a", "b"])])
    assert result.tested == 2
    assert result.rows[0].p == pytest.approx(2 * math.comb(20, 10) / math.comb(60, 10))


def test_few_samples_are_no_segment_and_missing_ones_are():
    values = np.arange(100, dtype=np.float64) % 5
    values[: FEWEST_SAMPLES - 1] = 7.0
    values[60:] = np.nan
    wrong = np.isnan(values).astype(float)
    result = found(wrong, [SegmentFeature("x", values)])
    assert [row.value for row in result.rows] == ["missing"]
    assert result.tested == 1
    assert segments(wrong[: 2 * FEWEST_SAMPLES - 1], [], "error rate") is None


def test_of_very_many_samples_evenly_spaced_ones_are_looked_at():
    values = np.arange(10 * MOST_SAMPLES) % 4
    result = found((values == 2).astype(float), [SegmentFeature("place", values, ["a", "b", "c", "d"])])
    assert result.samples == MOST_SAMPLES
    assert [(row.value, row.error, row.rest) for row in result.rows] == [("c", 1.0, 0.0)]


def test_only_so_many_are_told_and_dates_are_written_as_such():
    draw = np.random.default_rng(0)
    days = SegmentFeature("day", np.sort(draw.integers(0, 10**9, 2000)).astype(np.float64), is_date=True)
    copies = [SegmentFeature(str(nr), days.values) for nr in range(20)]
    result = found((np.arange(2000) < 400).astype(float), [days, *copies])
    assert (len(result.rows), result.found) == (MOST_ROWS, 21)
    assert result.rows[0].value.startswith("up to 19")


def test_the_interval_of_a_distance_is_that_of_students_mean():
    """1.96 standard errors of the mean to each side, the variance divided by n - 1."""
    off = np.where(np.arange(ROWS) < 24, 5.0, 1.0) + np.random.default_rng(2).random(ROWS)
    city = SegmentFeature("city", np.where(np.arange(ROWS) < 24, 0, 1), ["Bern", "Rome"])
    row = found(off, [city], "absolute error").rows[0]
    half = 1.959964 * statistics.stdev(off[:24].tolist()) / math.sqrt(24)
    assert (row.low, row.high) == pytest.approx((off[:24].mean() - half, off[:24].mean() + half), rel=1e-9)
