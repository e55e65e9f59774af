"""The planner's settings, from its page of the handbook."""

from __future__ import annotations

from pydantic import Field

from mltrainer.records.common import Part


class PlannerSettings(Part):
    """Shares, bytes and steps.

    Attributes:
        first_use_mb: Memory that the libraries take at their first computation, in MiB; measured.
        fragmentation_low: Smallest share of all tensors that the C library's allocator took beyond them; measured.
        fragmentation_usual: Median of these shares.
        fragmentation_high: Largest of these shares.
        noise_mb: Difference in memory of two starts of the same process, in MiB; measured.
        headroom: Share of the whole process that is added if another batch or way is derived from measured steps.
        memory_share: Share of a memory that may be planned with.
        time_error: Relative error of another batch's time; measured.
        probe_steps: Number of measured real steps.
        stale_days: Age at which a price is reported as old, in days.
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
