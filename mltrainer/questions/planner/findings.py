"""What the planner is asked and what it finds: memory in MiB, times in microseconds."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mltrainer.questions.findings import Explored, Findings, Value
from mltrainer.records.planner import Traced, Variant


class PlannerSettings(Findings):
    """What the planner decides by, as its page of the handbook says.

    Attributes:
        first_use_mb: What the libraries take when they first compute, in MiB; measured.
        fragmentation_low: The least share of all tensors that the C library's allocator took beyond them; measured.
        fragmentation_usual: The median of them.
        fragmentation_high: The most.
        noise_mb: By how much the memory of two starts of the same process differs, in MiB; measured.
        memory_share: Of a memory that may be planned with.
        time_error: How far the time of another batch may be off, as a share; measured.
        probe_steps: Real steps that are taken to measure.
        stale_days: Days after which a price that was read is named.
    """

    first_use_mb: Value
    fragmentation_low: Value
    fragmentation_usual: Value
    fragmentation_high: Value
    noise_mb: Value
    memory_share: Value
    time_error: Value
    probe_steps: Value
    stale_days: Value


class Asked(Findings):
    """The variants that are traced, the config's own first; `again`: also with their repeated blocks computed again."""

    variants: list[Variant]
    again: bool = True


class Memory(Findings):
    """One process's memory by part; `low` and `high` are what is resident, where the allocator's share is between its bounds."""

    weights: Value
    buffers: Value
    gradients: Value
    optimizer: Value
    activations: Value
    copies: Value
    framework: Value
    fragmentation: Value
    tensors: Value
    total: Value
    low: Value
    high: Value


class Span(Findings):
    """From `low` to `high`, in microseconds."""

    low: Value
    high: Value


class Measured(Findings):
    """A few real steps of the config: the shortest step and the 95th percentile, and the process's peak; or why not."""

    step: Span | None
    peak_mb: Value | None
    not_known: str | None


class Row(Findings):
    """A way to train: what it sets, the largest micro-batch that fits, and what that takes; `why_not` where it is none."""

    name: str
    set: dict[str, Any]
    batch_size: int | None
    accumulate: int | None
    peak: Memory | None
    step: Span | None
    step_not_known: str | None
    why_not: str | None


class OnDevice(Findings):
    """What a device of the page makes of the config, one micro-batch of one process."""

    name: str
    memory_mb: Value | None
    fits: bool | None
    largest: int | None
    step: Span | None
    not_known: list[str]
    sources: list[str]


class FoundPlan(Explored):
    """The plan of a training.

    Attributes:
        traced: What the trace gave.
        batch_size: The config's.
        accumulate: Likewise.
        processes: That were asked for.
        limit_mb: The memory that was planned with, and `limit`: in words.
        memory: Of the config as it is.
        measured: Its real steps.
        ways: To train with the same samples in a step.
        devices: Those that were asked for.
        set: The recommended keys.
        reason: Why.
        command: What sets them; None where nothing need change.
        not_known: What could not be told, each with its reason.
    """

    traced: Traced
    batch_size: int
    accumulate: int
    processes: int
    limit_mb: Value
    limit: str
    memory: Memory | None
    measured: Measured
    ways: list[Row]
    devices: list[OnDevice]
    changes: dict[str, Any] = Field(serialization_alias="set")
    reason: str
    command: str | None
    not_known: list[str]
    applied: list[str] = Field(default_factory=list)
