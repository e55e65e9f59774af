"""The range test: real steps at a learning rate that grows, until the loss diverges (Smith, 2017, arXiv 1506.01186)."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from mltrainer.companions.questions.findings import ExplorerSettings, Suggestion, rounded
from mltrainer.companions.questions.learning_rate import RangeTest
from mltrainer.companions.questions.measurements.explorer import Ticker, first_steps
from mltrainer.trainers.native.session import Session

ROUNDING = 1e-6  # a loss that changes by less than this share of itself changed by rounding
HIGHER = "it is lowest at the end of the range: raise --to"


def log_spaced(low: float, high: float, count: int) -> list[float]:
    """Return `count` values (at least 2) from `low` to `high`, each the same multiple of the one before."""
    return [low * (high / low) ** (place / (count - 1)) for place in range(count)]


class Smoothing:
    """An exponential mean without the bias to its start (Kingma and Ba, 2015, arXiv 1412.6980, section 3).

    Args:
        beta: Share of the mean so far in the next one; it looks back over about 1 / (1 - beta) values.
    """

    def __init__(self, beta: float) -> None:
        self._beta, self._mean, self._count = beta, 0.0, 0

    def add(self, value: float) -> float:
        """Take one more value in, and return the mean."""
        self._count += 1
        self._mean = self._beta * self._mean + (1 - self._beta) * value
        return self._mean / (1 - self._beta**self._count)


def diverged(smoothed: Sequence[float], factor: float) -> bool:
    """Return True where the last smoothed loss is not finite, or above the best by more than `factor` - 1 times its size."""
    best = min(smoothed)
    # Written with `not ... <=`, which is also true of NaN.
    return not math.isfinite(smoothed[-1]) or not smoothed[-1] <= best + (factor - 1) * abs(best)


def suggest_rate(
    rates: Sequence[float], losses: Sequence[float], smoothed: Sequence[float], margin: float, clear_fall: float
) -> Suggestion:
    """Return the learning rate at which the smoothed loss falls steepest over the rate's logarithm.

    The range test is Smith's (2017, arXiv 1506.01186, section 3.3). The steepest place may be close to where the loss
    turns, so the rate of the lowest loss, divided by `margin`, is the most that is suggested.

    Args:
        rates: Learning rates, rising, one per step.
        losses: Loss of each step; only the last may be not finite.
        smoothed: Smoothed losses.
        margin: Divisor of the rate of the lowest loss.
        clear_fall: The least fall, in multiples of the noise of a single loss.
    """
    count = sum(map(math.isfinite, smoothed))
    if not count:
        return Suggestion(None, "the loss is not a finite number before any step is taken: look at data, model and loss")
    start = max(3, count // 10)  # the first tenth shows the loss, and its noise, before anything is learned
    if count <= start:
        return Suggestion(None, f"the loss diverged within {count} steps: lower --from")
    lowest = min(range(count), key=smoothed.__getitem__)
    before, noise = statistics.fmean(losses[:start]), _noise(losses[: max(lowest, start)])
    fall, at_end = before - smoothed[lowest], lowest == len(rates) - 1
    if lowest < start or fall <= clear_fall * noise + ROUNDING * abs(before):
        message = f"the loss never fell clearly: {before:.4g} at the start, at best {smoothed[lowest]:.4g} (noise {noise:.2g})"
        return Suggestion(None, message + (f"; {HIGHER}" if at_end else ""))
    steepest = min(range(start, lowest + 1), key=lambda place: _slope(rates, smoothed, place))
    bound = rates[lowest] / margin
    message = f"the loss falls steepest at {rates[steepest]:.2g} and is lowest at {rates[lowest]:.2g}"
    if bound < rates[steepest]:
        divided = f"divided by {margin:g} because no turn was seen: {HIGHER}"
        away = f"which divided by {margin:g} keeps away from its turn"
        return Suggestion(rounded(bound), f"{message}, {divided if at_end else away}")
    return Suggestion(rounded(rates[steepest]), message)


def _noise(losses: Sequence[float]) -> float:
    """Return the standard deviation of single losses around a slow trend, from the median change of one to the next."""
    changes = [abs(after - before) for before, after in itertools.pairwise(losses)]
    return statistics.median(changes) / 0.954  # of two normal numbers, the median distance is 0.954 standard deviations


def _slope(rates: Sequence[float], smoothed: Sequence[float], place: int) -> float:
    """Return the change of the loss per factor e of the rate, over the step before and the one after."""
    after = place + 1 if place + 1 < len(smoothed) and math.isfinite(smoothed[place + 1]) else place
    return (smoothed[after] - smoothed[place - 1]) / math.log(rates[after] / rates[place - 1])


def measure(session: Session, settings: ExplorerSettings, *, steps: int, low: float, high: float) -> RangeTest:
    """Return rate, loss and smoothed loss of each step, and the rate that they suggest.

    Each step uses the config's optimizer, clipping and precision; a parameter group keeps its share of the rate.
    """
    rates = log_spaced(low, high, steps)
    losses, smoothed = _losses(session, rates, settings.smoothing, settings.divergence)
    suggested = suggest_rate(rates, losses, smoothed, settings.margin, settings.clear_fall)
    return RangeTest(
        rates=rates[: len(losses)],
        losses=losses,
        smoothed=smoothed,
        stopped=len(losses) < len(rates) or diverged(smoothed, settings.divergence),
        suggestion=suggested.value,
        reason=suggested.reason,
    )


def _losses(session: Session, rates: list[float], beta: float, factor: float) -> tuple[list[float], list[float]]:
    """Return the losses up to the divergence, and the smoothed ones."""
    smoothing, ticker = Smoothing(beta), Ticker(session, len(rates))
    losses: list[float] = []
    smoothed: list[float] = []
    for number, step in enumerate(first_steps(session, len(rates)), 1):
        losses.append(float(session.trainer.stepper.take(number, rates[number - 1], step).loss))
        smoothed.append(smoothing.add(losses[-1]))
        ticker(losses[-1])
        if diverged(smoothed, factor):
            break
    return losses, smoothed
