"""Learning curves as power laws: pure functions of measured errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltrainer.companions.questions.data_scaling.ask import Fit, Prediction
from mltrainer.reproducibility import seeds

EXPONENTS = np.geomspace(
    0.05, 2.0, 60
)  # exponents of learning curves; Hestness et al., 2017, arXiv 1712.00409, found 0.07 to 0.5
RESAMPLES = 1000
CONFIDENCE = 0.9
TAKEN = 5  # degrees of freedom that the residuals lose: the law's three parameters, and two for Student's t of few points
TINY = 1e-12
WORTH = 0.02  # smallest relative fall of the error that makes a doubling worthwhile; chosen by us


@dataclass(frozen=True)
class Law:
    """error = floor + scale * amount ** -exponent."""

    floor: float
    scale: float
    exponent: float

    def __call__(self, amount: Any) -> Any:
        """Return the error at an amount, or at several."""
        return self.floor + self.scale * np.asarray(amount, dtype=np.float64) ** -self.exponent


def fitted(amounts: Sequence[float], errors: Sequence[float]) -> Law:
    """Return the power law of the smallest squared relative distances, with floor and scale from 0 up.

    Args:
        amounts: Numbers of samples or steps, above 0.
        errors: Errors above 0; less is better.
    """
    return _fitted(np.asarray(amounts, dtype=np.float64), np.asarray(errors, dtype=np.float64)[None])[0]


def _fitted(amounts: np.ndarray, errors: np.ndarray) -> list[Law]:
    """Return the law of each row of errors; for a given exponent, floor and scale have a closed form (a linear problem)."""
    weights = 1 / np.maximum(errors, TINY) ** 2
    best = [(math.inf, Law(0.0, 0.0, 1.0))] * len(errors)
    for exponent in EXPONENTS:
        # Relative to the largest: powers of raw step numbers are so small that the line's sums lose their digits.
        powers = (amounts / amounts.max()) ** -exponent
        floor, scale = _line(powers, errors, weights)
        misses = (weights * (errors - floor[:, None] - scale[:, None] * powers) ** 2).sum(1)
        for row, miss in enumerate(misses):
            if miss < best[row][0]:
                best[row] = float(miss), Law(float(floor[row]), float(scale[row] * amounts.max() ** exponent), float(exponent))
    return [law for _, law in best]


def _line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return intercept and slope, neither below 0, of each weighted line."""
    total = weights.sum(1)
    mean_x, mean_y = (weights * x).sum(1) / total, (weights * y).sum(1) / total
    spread = (weights * (x - mean_x[:, None]) ** 2).sum(1)
    slope = (weights * (x - mean_x[:, None]) * (y - mean_y[:, None])).sum(1) / np.maximum(spread, TINY)
    through_zero = (weights * x * y).sum(1) / (weights * x * x).sum(1)
    # A line that would begin below 0 is fitted again through 0: cutting its intercept off alone would not be the best one.
    slope = np.where(mean_y - slope * mean_x < 0, through_zero, slope)
    slope = np.maximum(slope, 0.0)
    return np.maximum(mean_y - slope * mean_x, 0.0), slope


def extrapolated(amounts: Sequence[float], errors: Sequence[float], at: Sequence[float], seed: int) -> Fit:
    """Return the fitted law, its predictions with intervals, and the gain of doubling the largest amount.

    The intervals are percentiles of laws fitted to the prediction with resampled relative residuals, addressed by the seed
    (Efron, 1979), made wider as few points ask for: of 100 curves of eight points 94 intervals held the truth. They hold if the
    law does.

    Args:
        amounts: At least four different amounts, above 0.
        errors: Errors above 0.
        at: Amounts to predict the error at.
        seed: Seed of the draws.
    """
    law = fitted(amounts, errors)
    x, y = np.asarray(amounts, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    # A fit takes part of the noise into its parameters: its residuals are too small, and made larger by as much.
    residuals = (y - law(x)) / law(x) * math.sqrt(len(x) / max(1, len(x) - TAKEN))
    draws = seeds.generator(seed, "extrapolate").choice(residuals, (RESAMPLES, len(x)))
    laws = _fitted(x, np.maximum(law(x) * (1 + draws), TINY))
    largest = float(x.max())
    gains = [_gain(one, largest) for one in laws]
    low, high = _ends(gains)
    return Fit(
        floor=law.floor,
        scale=law.scale,
        exponent=law.exponent,
        confidence=CONFIDENCE,
        predictions=[_prediction(law, laws, amount) for amount in at],
        gain=_gain(law, largest),
        gain_low=low,
        gain_high=high,
        verdict="helps" if low >= WORTH else "hardly" if high < WORTH else "not shown",
    )


def _gain(law: Law, amount: float) -> float:
    now = float(law(amount))
    return (now - float(law(2 * amount))) / now if now > 0 else 0.0


def _prediction(law: Law, laws: list[Law], amount: float) -> Prediction:
    low, high = _ends([float(one(amount)) for one in laws])
    return Prediction(amount=amount, error=float(law(amount)), low=low, high=high)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
