"""The time of a step: a measured time, scaled to another step by the work of both; never of an unmeasured device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from mltrainer.configs.pages import Device
from mltrainer.records.common import Number, Part
from mltrainer.records.planner import Precise, Rates, TracedBatch


class Interval(Part):
    """From `low` to `high`, such as the microseconds of a step."""

    low: Number
    high: Number

    @classmethod
    def exact(cls, value: float) -> Self:
        """Return the interval of one value."""
        return cls(low=value, high=value)

    def each(self, change: Callable[[float], float]) -> Self:
        """Return the interval with both ends changed."""
        return type(self)(low=change(self.low), high=change(self.high))

    def times(self, factor: float | Interval) -> Self:
        """Return the interval of products; neither factor is below 0."""
        low, high = (factor.low, factor.high) if isinstance(factor, Interval) else (factor, factor)
        return type(self)(low=self.low * low, high=self.high * high)

    def __add__(self, other: Interval) -> Interval:
        """Return the interval of sums."""
        return Interval(low=self.low + other.low, high=self.high + other.high)


def row_at(rows: list[TracedBatch], batch: int) -> TracedBatch:
    """Return a batch's row: the operations of any batch, and the work that grows with it on the line of two traced rows."""
    if len(rows) == 1:
        return rows[0]
    low, high = rows[0], rows[-1]
    share = (batch - low.batch) / (high.batch - low.batch)
    changes = {
        key: round(getattr(low, key) + share * (getattr(high, key) - getattr(low, key))) for key in ("flops", "moved_bytes")
    }
    return low.model_copy(update={"batch": batch, **changes})


def work_s(row: TracedBatch, accumulate: int, rates: Rates) -> float:
    """Return the seconds of a step of `count` micro-batches at a machine's best rates; a real step takes longer."""
    each = row.flops / rates.flops_per_s
    each += (row.moved_bytes - row.update_moved_bytes) / rates.bytes_per_s
    each += (row.operations - row.update_operations) * rates.overhead_s
    return accumulate * each + row.update_moved_bytes / rates.bytes_per_s + row.update_operations * rates.overhead_s


def scaled(measured: Interval, own_s: float, other_s: float, error: float) -> Interval:
    """Return the time of another step of the same precision, from the config's measured step.

    Args:
        measured: Measured time of the config's step.
        own_s: Work of that step, from `work_s`.
        other_s: Work of the other step.
        error: Relative error of such a time; not applied if the work is the same.
    """
    off = error if other_s != own_s else 0.0
    return Interval(low=measured.low * (1 - off), high=measured.high * (1 + off)).times(other_s / own_s)


def on_device(row: TracedBatch, device: Device, precision: Precise) -> Interval | str:
    """Return the microseconds of a micro-batch on a device by its peak rate and its measured utilization, or why not."""
    rate, used = device.tflops.get(precision), device.utilization
    if rate is None or rate.value is None:
        return f"no peak rate for {precision} is on the page of devices"
    if used is None:
        return "its utilization was not measured: `mltrainer profile` there, then write it on your page of devices"
    at_peak = row.flops / (rate.value * 1e6)
    return Interval(low=at_peak / used.high, high=at_peak / used.low)
