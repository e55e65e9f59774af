"""What is said of two runs beside each other: no noise of the machine is called a gain."""

from __future__ import annotations

import math

import pytest

from mltrainer.records.run import Speed
from mltrainer.reports.runs import SpeedDifference, speed_rows, speeds_apart
from mltrainer.tasks.statistics import seed_noise

NOISE = seed_noise([[math.log(rate) for rate in (100.0, 110.0, 95.0, 105.0, 98.0)]])


def apart(rate: float, noise: object = NOISE) -> SpeedDifference:
    found = SpeedDifference.of(Speed(samples_per_s=100.0), Speed(samples_per_s=rate), noise)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rate", "verdict"),
    [(200.0, "faster"), (50.0, "slower"), (115.0, "no clear difference"), (90.0, "no clear difference"), (100.0, "same")],
)
def test_a_speed_is_another_one_only_beyond_what_runs_of_one_config_differ_by(rate, verdict):
    assert apart(rate).verdict == verdict


def test_without_runs_of_one_config_nothing_is_faster():
    found = apart(1000.0, None)
    assert (found.verdict, found.least) == ("no clear difference", None)
    assert speeds_apart(found) == (
        "speed: 10.0 times as many samples in a second"
        " (how far two runs of one config differ is unknown: mltrainer seeds): no clear difference"
    )


def test_both_runs_numbers_stand_beside_each_other_as_far_as_they_are_known():
    one = Speed(samples_per_s=100.0, tokens_per_sample=64, flops_per_sample=2e10, peak_flops_per_s=1e13)
    found = SpeedDifference.of(one, Speed(samples_per_s=50.0, tokens_per_sample=64), NOISE)
    assert found is not None
    assert speed_rows(found) == [
        ["samples/s", "100", "50.0"],
        ["tokens/s", "6,400", "3,200"],
        ["TFLOPS", "2.00", "-"],
        ["MFU", "20.0 %", "-"],
    ]
    assert speeds_apart(found).startswith(
        "speed: 0.500 times as many samples in a second (two runs of one config differ by up to 1."
    )
    assert speeds_apart(found).endswith("): the second is slower")
    assert SpeedDifference.of(one, Speed(samples_per_s=None), NOISE) is None
