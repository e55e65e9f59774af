"""Calibration: near luck where probabilities are true, far from it where they are not; residuals along the predictions."""

from __future__ import annotations

import math

import pytest
import torch

from mltrainer.records.run import Calibration
from mltrainer.tasks.calibration import calibration, residuals, wilson
from mltrainer.tasks.metrics import ClassifierOutputs, classification

SAMPLES = 3000


def judged(sharper: float, classes: int = 3) -> Calibration:
    """Return the calibration of logits that are so many times those by which the targets were drawn."""
    draw = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(SAMPLES, classes, generator=draw)
    targets = torch.multinomial(logits.softmax(1), 1, generator=draw).flatten()
    found = calibration(ClassifierOutputs(sharper * logits, targets, 1))
    assert found is not None
    return found


@pytest.mark.parametrize("classes", [2, 3])
def test_true_probabilities_have_an_error_like_luck_and_sharper_ones_a_larger(classes):
    true, sharp = judged(1.0, classes), judged(4.0, classes)
    assert true.error == pytest.approx(true.by_luck, rel=0.5)
    assert sharp.error > 4 * sharp.by_luck
    assert sum(row.low <= row.probability <= row.high for row in true.bins) >= 0.8 * len(true.bins)


def test_bins_have_equal_width_hold_all_samples_and_make_up_the_error():
    found = judged(4.0)
    assert sum(row.samples for row in found.bins) == SAMPLES
    numbers = [math.ceil(15 * row.probability) for row in found.bins]
    assert numbers == sorted(set(numbers))
    gaps = [row.samples / SAMPLES * abs(row.probability - row.frequency) for row in found.bins]
    assert found.error == pytest.approx(sum(gaps))


def test_the_error_is_that_of_the_metric():
    outputs, targets = torch.randn(100, 2, generator=torch.Generator().manual_seed(1)), torch.arange(100) % 2
    given = ClassifierOutputs(outputs, targets, 1)
    found = calibration(given)
    assert found.error == classification(outputs, targets, 1, ["calibration_error"])["calibration_error"]


def test_few_samples_have_no_calibration():
    assert calibration(ClassifierOutputs(torch.zeros(19, 2), torch.zeros(19, dtype=torch.int64), 1)) is None


def test_a_share_has_wilsons_interval():
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_residuals_that_grow_with_the_prediction_are_covered_less_where_it_is_large():
    draw = torch.Generator().manual_seed(0)
    outputs = torch.linspace(1, 10, 1000)
    found = residuals(outputs, outputs * (1 + 0.1 * torch.randn(1000, generator=draw)))
    covered = [row.covered for row in found.bins]
    assert (covered[0], covered[-1]) == (1.0, min(covered))
    assert sum(covered) / len(covered) == pytest.approx(found.level, abs=0.002)
    assert [row.samples for row in found.bins] == [100] * 10
    assert residuals(torch.zeros(39), torch.zeros(39)) is None
