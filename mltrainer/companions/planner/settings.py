"""What the planner decides by, as its page of the handbook says."""

from __future__ import annotations

from pydantic import Field

from mltrainer.records.common import Part


class PlannerSettings(Part):
    """Shares, bytes and steps.

    Attributes:
        first_use_mb: What the libraries take when they first compute, in MiB; measured.
        fragmentation_low: The least share of all tensors that the C library's allocator took beyond them; measured.
        fragmentation_usual: The median of them.
        fragmentation_high: The most.
        noise_mb: By how much the memory of two starts of the same process differs, in MiB; measured.
        headroom: Of the whole process, added where another batch or way is told from the measured one's steps.
        memory_share: Of a memory that may be planned with.
        time_error: How far the time of another batch may be off, as a share; measured.
        probe_steps: Real steps that are taken to measure.
        stale_days: Days after which a price that was read is named.
    """

    first_use_mb: float
    fragmentation_low: float
    fragmentation_usual: float
    fragmentation_high: float
    noise_mb: float
    headroom: float = Field(0.0, description="pages of a team's own that were copied before it have none")
    memory_share: float
    time_error: float
    probe_steps: int
    stale_days: float
