"""The reliability of answers: probabilities beside frequencies, and predictions beside their residuals."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from mltrainer.records.run import Along, Calibration, CalibrationBin, ResidualBin
from mltrainer.tasks import statistics
from mltrainer.tasks.metrics import CALIBRATION_BINS, ClassifierOutputs, calibration_error
from mltrainer.tasks.statistics import NORMAL_95

FEWEST_SAMPLES = 20  # with fewer, a frequency says nothing
RESIDUAL_BINS = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
COVERED = 0.9  # the nominal coverage of the interval that is checked


def calibration(given: ClassifierOutputs) -> Calibration | None:
    """Return the calibration of the answers' probabilities; None for fewer samples than `FEWEST_SAMPLES`.

    Its error is the metric `calibration_error`, of the same bins.
    """
    if len(given.targets) < FEWEST_SAMPLES:
        return None
    surest, right = given.surest.numpy(), given.right.numpy()
    bins = [_bin(surest[part], right[part]) for nr in range(CALIBRATION_BINS) if (part := given.bins.numpy() == nr).any()]
    # The mean distance of a binomial share from its probability, by the normal approximation: even perfect answers show as much.
    by_luck = [math.sqrt(2 / math.pi * row.probability * (1 - row.probability) / row.samples) for row in bins]
    return Calibration.model_construct(  # not validated: of infinite outputs the mean probability is NaN
        error=calibration_error(given),
        by_luck=sum(row.samples * luck for row, luck in zip(bins, by_luck, strict=True)) / len(right),
        probability=float(surest.mean()),
        frequency=float(right.mean()),
        bins=[CalibrationBin.model_construct(**row._asdict()) for row in bins],
    )


def _equal_parts(values: np.ndarray, most: int) -> list[np.ndarray]:
    """Return the places of the values, rising, in equal parts, of which each has enough samples."""
    count = max(1, min(most, len(values) // FEWEST_SAMPLES))
    # Stable, so that samples of equal probability fall into the same bins each time.
    return [part for part in np.array_split(np.argsort(values, kind="stable"), count) if len(part)]


class _Bin(NamedTuple):
    """Samples of about one probability, the frequency of the event, and the ends of that share's 95 % interval."""

    probability: float
    frequency: float
    samples: int
    low: float
    high: float


def _bin(sure: np.ndarray, right: np.ndarray) -> _Bin:
    return _Bin(min(1.0, float(sure.mean())), float(right.mean()), len(right), *wilson(int(right.sum()), len(right)))


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    low, high = statistics.wilson(hits / count, count, NORMAL_95)
    return max(0.0, low), min(1.0, high)


def residuals(outputs: Tensor, targets: Tensor) -> Along | None:
    """Return the distribution of prediction - target along the predictions; None for too few samples, and for NaN.

    The bins hold equally many samples, by rising prediction.
    """
    given, errors = outputs.double().numpy(), (outputs.double() - targets.double()).numpy()
    if len(errors) < 2 * FEWEST_SAMPLES or not np.isfinite(errors).all():
        return None
    half = float(np.quantile(np.abs(errors), COVERED))
    bins = [
        ResidualBin.model_construct(
            prediction=float(given[part].mean()),
            quantiles=np.quantile(errors[part], QUANTILES).tolist(),
            covered=float((np.abs(errors[part]) <= half).mean()),
            samples=len(part),
        )
        for part in _equal_parts(given, RESIDUAL_BINS)
    ]
    return Along.model_construct(half_width=half, level=COVERED, bins=bins)
