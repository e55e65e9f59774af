"""The time of a step: a measured time, scaled to another step by the work of both; never of an unmeasured device."""

from __future__ import annotations

from dataclasses import dataclass

from mltrainer.configs.pages import Device
from mltrainer.records.planner import Precise, Rates, TracedBatch


@dataclass(frozen=True)
class Interval:
    """Seconds from `low` to `high`."""

    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """Return both ends multiplied by a count."""
        return Interval(self.low * factor, self.high * factor)


def row_at(rows: list[TracedBatch], batch: int) -> TracedBatch:
    """Return a batch's row: the operations of any batch, and the work that grows with it on the line of two traced rows."""
    if len(rows) == 1:
        return rows[0]
    low, high = rows[0], rows[-1]
    share = (batch - low.batch) / (high.batch - low.batch)

    changes = {
        name: round(first + share * (last - first))
        for name, first, last in (
            ("flops", low.flops, high.flops),
            ("moved_bytes", low.moved_bytes, high.moved_bytes),
        )
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
    return Interval(measured.low * (1 - off), measured.high * (1 + off)).times(other_s / own_s)


def on_device(row: TracedBatch, device: Device, precision: Precise) -> Interval | str:
    """Return the time of a micro-batch on a device by its peak rate and the utilization that was measured there, or why not."""
    rate, used = device.tflops.get(precision), device.utilization
    if rate is None or rate.value is None:
        return f"no peak rate for {precision} is on the page of devices"
    if used is None:
        return "its utilization was not measured: `mltrainer profile` there, then write it on your page of devices"
    at_peak = row.flops / (rate.value * 1e12)
    return Interval(at_peak / used.high, at_peak / used.low)
