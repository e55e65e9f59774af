"""Scales and ticks of figures, computed with decimals, so that they are the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext

from mltrainer.reports.values import number

LARGEST = 1e150  # beyond it a difference of two values may overflow
_CONTEXT = Context(prec=28)
# 17 digits distinguish any two floats.
_LOG_CONTEXT = Context(prec=17)
_STEPS = (Decimal(1), Decimal(2), Decimal("2.5"), Decimal(5), Decimal(10))


def drawable(value: float) -> bool:
    """Return True if a linear axis can show the value: finite, and not too large to scale."""
    return math.isfinite(value) and abs(value) < LARGEST


def log10(value: float) -> float:
    """Return the logarithm of a positive number, correctly rounded on every machine."""
    return float(Decimal(value).log10(_LOG_CONTEXT))


@dataclass(frozen=True)
class Scale:
    """One axis.

    Attributes:
        low: The value at the axis's start; its logarithm on a log axis.
        high: The value at the axis's end; its logarithm on a log axis.
        ticks: The positions and labels of the ticks, in the same measure as `low`.
        log: Whether the axis is logarithmic.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Return a value's position on the axis: 0 at its start, 1 at its end."""
        return ((log10(value) if self.log else value) - self.low) / ((self.high - self.low) or 1.0)

    def value(self, share: float) -> float:
        """Return the value at a share, from 0 to 1, of the axis."""
        found = self.low + (self.high - self.low) * share
        return float(10**found) if self.log else found

    def has(self, value: float) -> bool:
        """Return True if the axis can show the value; a log axis shows only positive ones."""
        return drawable(value) and (value > 0 or not self.log)


def linear(values: Sequence[float], count: int = 5, tight: bool = False) -> Scale:
    """Return an axis with round ticks that holds all the values.

    Args:
        values: The drawable values, at least one.
        count: The approximate number of intervals.
        tight: Whether the axis ends at the values, not at the next ticks.
    """
    low, high = min(values), max(values)
    if low == high:
        margin = abs(low) * 0.1 or 1.0
        low, high = (low - margin, high + margin) if not tight else (low - 0.5, high + 0.5)
    with localcontext(_CONTEXT):
        step = _step((Decimal(high) - Decimal(low)) / count)
        inner, outer = (ROUND_CEILING, ROUND_FLOOR) if tight else (ROUND_FLOOR, ROUND_CEILING)
        first = int((Decimal(low) / step).to_integral_value(inner))
        last = int((Decimal(high) / step).to_integral_value(outer))
        ticks = tuple((float(step * nr), _label(step * nr, step)) for nr in range(first, last + 1))
    if tight:
        return Scale(low, high, ticks)
    return Scale(ticks[0][0], ticks[-1][0], ticks)


def _step(width: Decimal) -> Decimal:
    base = Decimal(1).scaleb(width.adjusted())
    return next(base * step for step in _STEPS if base * step >= width)


def _label(value: Decimal, step: Decimal) -> str:
    exponent = int(step.normalize().as_tuple().exponent)
    if value == 0:
        return "0"
    if not -5 <= value.adjusted() <= 5 or exponent < -6:
        return f"{float(value):.3g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:,.{max(0, -exponent)}f}"


def logarithmic(values: Sequence[float]) -> Scale:
    """Return a log axis from the power of ten below some positive values to the one above."""
    low, high = math.floor(log10(min(values))), math.ceil(log10(max(values)))
    # Values of a single power of ten would leave the axis without a length.
    high = max(high, low + 1)
    every = -(-(high - low) // 6)
    ticks = [(float(power), _power(power)) for power in range(low, high + 1, every)]
    if high - low <= 2:
        ticks += [(power + log10(digit), number(digit * _ten(power), 1)) for power in range(low, high) for digit in (2.0, 5.0)]
    return Scale(float(low), float(high), tuple(sorted(ticks)), log=True)


def _ten(power: int) -> float:
    # Parsed, not computed: parsing is rounded correctly everywhere, the C library's power is not.
    return float(f"1e{power}")


def _power(power: int) -> str:
    return number(_ten(power), 1) if -4 < power < 6 else f"1e{power}"


def log_suits(values: Iterable[float]) -> bool:
    """Return True if values suit a log axis: all positive, and more than two powers of ten apart."""
    whole = [value for value in values if drawable(value)]
    return bool(whole) and min(whole) > 0 and log10(max(whole)) - log10(min(whole)) > 2
