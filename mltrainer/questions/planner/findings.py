"""What the planner is asked and what it finds: memory in MiB, times in microseconds."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mltrainer.questions.findings import Explored, Findings, Value
from mltrainer.records.planner import Traced, Variant


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
