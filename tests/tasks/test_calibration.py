"""Calibration: near luck where probabilities are true, far from it where they are not; residuals along the predictions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mltrainer.records.run import Calibration
from mltrainer.tasks.calibration import calibration, residuals, wilson

SAMPLES = 3000


def judged(sharper: float, classes: int = 3) -> Calibration:
    """Return the calibration of logits that are so many times those by which the targets were drawn."""
    draw = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(SAMPLES, classes, generator=draw)
    targets = torch.multinomial(logits.softmax(1), 1, generator=draw).flatten()
    found = calibration(sharper * logits, targets, 1, [str(nr) for nr in range(classes)])
    assert found is not None
    return found


@pytest.mark.parametrize("classes", [2, 3])
def test_true_probabilities_have_an_error_like_luck_and_sharper_ones_a_larger(classes: int) -> None:
    true, sharp = judged(1.0, classes), judged(4.0, classes)
    assert true.error == pytest.approx(true.by_luck, rel=0.5)
    assert sharp.error > 4 * sharp.by_luck
    assert sum(row.low <= row.probability <= row.high for row in true.bins) >= 13
    assert true.of == ("1" if classes == 2 else None)


def test_bins_hold_equally_many_samples_and_rise() -> None:
    bins = judged(1.0).bins
    assert {row.samples for row in bins} == {SAMPLES // 15}
    assert [row.probability for row in bins] == sorted(row.probability for row in bins)


@pytest.mark.parametrize("outputs", [torch.zeros(19, 2), torch.full((40, 2), torch.nan)])
def test_few_samples_and_nan_have_no_calibration(outputs: Tensor) -> None:
    assert calibration(outputs, torch.zeros(len(outputs), dtype=torch.int64), 1, ["a", "b"]) is None


def test_a_share_has_wilsons_interval() -> None:
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_residuals_that_grow_with_the_prediction_are_covered_less_where_it_is_large() -> None:
    draw = torch.Generator().manual_seed(0)
    outputs = torch.linspace(1, 10, 1000)
    found = residuals(outputs, outputs * (1 + 0.1 * torch.randn(1000, generator=draw)))
    assert found is not None
    covered = [row.covered for row in found.bins]
    assert (covered[0], covered[-1]) == (1.0, min(covered))
    assert sum(covered) / len(covered) == pytest.approx(found.level, abs=0.002)
    assert [row.samples for row in found.bins] == [100] * 10
    assert residuals(torch.zeros(39), torch.zeros(39)) is None
