"""How far answers can be trusted: probabilities beside frequencies, and predictions beside what they missed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from mltrainer.records.run import Along, Calibration, CalibrationBin, ResidualBin
from mltrainer.tasks import proportions

MOST_BINS = 15  # as Guo et al., 2017, arXiv 1706.04599
FEWEST_SAMPLES = 20  # of a bin: of fewer, a frequency tells nothing
RESIDUAL_BINS = 10
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
COVERED = 0.9  # of the samples lie within the interval whose coverage is looked at
NORMAL_95 = 1.959964


def calibration(outputs: Tensor, targets: Tensor, positive: int, names: list[str]) -> Calibration | None:
    """Return the calibration of the probabilities; None for fewer samples than one bin takes, and for NaN.

    Of two classes it is the probability of the positive one, of more that of the answer given. The bins hold equally many
    samples, so that none is nearly empty (Nixon et al., 2019, arXiv 1904.01685); the error is that of Guo et al. (2017, arXiv
    1706.04599): the mean distance of probability and frequency over the bins.

    Args:
        outputs: Logits [samples, classes].
        targets: Class numbers [samples].
        positive: Of two classes the one that is looked for.
        names: Of the classes.
    """
    if len(targets) < FEWEST_SAMPLES or bool(outputs.isnan().any()):
        return None
    shares = outputs.double().softmax(1)
    binary = len(names) == 2
    sure = (shares[:, positive] if binary else shares.amax(1)).numpy()
    right = (targets == positive if binary else outputs.argmax(1) == targets).numpy().astype(np.float64)
    bins = [_bin(sure[part], right[part]) for part in _equal_parts(sure, MOST_BINS)]
    weights = [row.samples / len(right) for row in bins]
    # The mean distance of a binomial share from its probability, by the normal approximation: even perfect answers show as much.
    by_luck = [math.sqrt(2 / math.pi * row.probability * (1 - row.probability) / row.samples) for row in bins]
    return Calibration.model_construct(  # not validated: of infinite outputs the mean probability is NaN
        of=names[positive] if binary else None,
        error=sum(w * abs(row.probability - row.frequency) for w, row in zip(weights, bins, strict=True)),
        by_luck=sum(w * luck for w, luck in zip(weights, by_luck, strict=True)),
        probability=float(sure.mean()),
        frequency=float(right.mean()),
        bins=[CalibrationBin.model_construct(**row._asdict()) for row in bins],
    )


def _equal_parts(values: np.ndarray, most: int) -> list[np.ndarray]:
    """Return the places of the values, rising, in equal parts, of which each has enough samples."""
    count = max(1, min(most, len(values) // FEWEST_SAMPLES))
    # Stable, so that samples of equal probability fall into the same bins each time.
    return [part for part in np.array_split(np.argsort(values, kind="stable"), count) if len(part)]


class _Bin(NamedTuple):
    """Samples of about one probability, how often it came true, and the ends of that share's 95 % interval."""

    probability: float
    frequency: float
    samples: int
    low: float
    high: float


def _bin(sure: np.ndarray, right: np.ndarray) -> _Bin:
    return _Bin(min(1.0, float(sure.mean())), float(right.mean()), len(right), *wilson(int(right.sum()), len(right)))


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    low, high = proportions.wilson(hits / count, count, NORMAL_95)
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
