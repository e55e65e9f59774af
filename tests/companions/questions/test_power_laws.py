"""Learning curves: laws found again in what they made, intervals that hold the truth, and no promise where nothing falls."""

from __future__ import annotations

import numpy as np
import pytest

from mltrainer.companions.questions.measurements.data_scaling import (
    WORTH,
    Law,
    error_name,
    error_of,
    extrapolated,
    fitted,
    part_of,
)

AMOUNTS = [125.0, 125, 250, 250, 500, 500, 1000, 1000]


@pytest.mark.parametrize("law", [Law(0.05, 2.0, 0.5), Law(0.0, 1.0, 0.2), Law(0.3, 40.0, 1.0)])
def test_a_law_is_found_again(law):
    found = fitted(AMOUNTS, law(AMOUNTS).tolist())
    assert found(4000.0) == pytest.approx(law(4000.0), rel=0.02)
    assert found.floor >= 0


@pytest.mark.slow
def test_nine_of_ten_intervals_hold_the_truth():
    law, held = Law(0.05, 2.0, 0.5), 0
    for seed in range(40):
        noise = 1 + 0.05 * np.random.default_rng(seed).normal(size=8)
        (row,) = extrapolated(AMOUNTS, (law(AMOUNTS) * noise).tolist(), [2000.0], seed).predictions
        held += row.low <= law(2000.0) <= row.high
    assert held >= 34


def test_noise_without_a_fall_promises_nothing_and_a_clear_fall_does():
    draw = np.random.default_rng(3)
    flat = extrapolated(AMOUNTS, (0.2 * (1 + 0.02 * draw.normal(size=8))).tolist(), [1000.0], 1)
    assert flat.verdict != "helps"
    steep = extrapolated(AMOUNTS, (Law(0.0, 1.0, 0.35)(AMOUNTS) * (1 + 0.02 * draw.normal(size=8))).tolist(), [1000.0], 1)
    assert (steep.verdict, steep.gain) == ("helps", pytest.approx(1 - 2**-0.35, abs=0.05))
    assert steep.gain_low > WORTH


@pytest.mark.slow
def test_the_same_seed_gives_the_same_interval():
    errors = (Law(0.1, 2.0, 0.5)(AMOUNTS) * (1 + 0.05 * np.random.default_rng(0).normal(size=8))).tolist()
    first, again, other = (extrapolated(AMOUNTS, errors, [2000.0], seed) for seed in (1, 1, 2))
    assert first == again
    assert first.predictions != other.predictions


def test_what_counts_as_the_error():
    rows = [{"accuracy": 0.9, "loss": 0.3, "reward": 40.0, "rmse": 2.0}]
    names = [error_name(rows, name, mode) for name, mode in (("accuracy", "max"), ("rmse", "min"), ("reward", "max"))]
    assert names == ["1 - accuracy", "rmse", "loss"]
    assert [error_of(rows[0], name) for name in names] == [pytest.approx(0.1), 2.0, 0.3]
    assert (part_of(1000, 0.125), part_of(3, 0.125)) == (125, 1)
