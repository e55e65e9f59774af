"""The settings of the gates' items: what each may be; only one that came later has a default, what pages meant before."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mltrainer.configs.loading import Strict


class ItemSettings(Strict):
    """An item without settings."""


class SourceSettings(ItemSettings):
    """`source_recorded`."""

    allow_dirty: bool = Field(description="whether a dirty tree may pass")


class ProbeSettings(ItemSettings):
    """`probe_identical`."""

    min_steps: int = Field(ge=1, description="the fewest steps in which both probes must agree")


class MemorySettings(ItemSettings):
    """`memory_fits`."""

    max_share: float = Field(gt=0, le=1, description="the largest share of the free memory that the run may take")


class CheckpointSettings(ItemSettings):
    """`checkpoints_verified`."""

    demand: Literal["both", "configured"] = Field(
        "configured", description="both: the best and the last, whatever the config keeps"
    )


class UtilizationSettings(ItemSettings):
    """`gpu_utilization`."""

    min_percent: float = Field(ge=0, lt=100, description="the GPU must be busier than this")


class CurvesSettings(ItemSettings):
    """`curves_analysed`."""

    min_evaluations: int = Field(ge=1, description="the fewest points of a learning curve")


class ImprovementSettings(ItemSettings):
    """`improvement_validated`."""

    seeds: int = Field(ge=1, le=20, description="the fewest pairs; the exact test computes 2**seeds sums")
    level: float = Field(gt=0, le=0.5, description="the largest p-value")


class ExportSettings(ItemSettings):
    """`exports_agree`."""

    tolerance: float = Field(gt=0, lt=1, description="the largest difference, relative to the largest output")


class DocumentSettings(ItemSettings):
    """`documentation_written`."""

    files: str = Field(min_length=1, description="names of the files that a deployment needs, between spaces")


class OpeningSettings(ItemSettings):
    """`test_opened_once`."""

    max_openings: int = Field(ge=1, description="of how many models the test split may have been looked at")


class AcceptanceSettings(ItemSettings):
    """`acceptance_met`."""

    split: Literal["test", "validation"] | None = Field(None, description="what decides; null: validation, as before it was said")


class CommitSettings(ItemSettings):
    """`source_committed`."""

    allow_no_git: bool = Field(description="whether the files' digests do where there is no repository")


SETTINGS: dict[str, type[ItemSettings]] = {
    "source_recorded": SourceSettings,
    "probe_identical": ProbeSettings,
    "memory_fits": MemorySettings,
    "checkpoints_verified": CheckpointSettings,
    "gpu_utilization": UtilizationSettings,
    "curves_analysed": CurvesSettings,
    "improvement_validated": ImprovementSettings,
    "exports_agree": ExportSettings,
    "documentation_written": DocumentSettings,
    "test_opened_once": OpeningSettings,
    "acceptance_met": AcceptanceSettings,
    "source_committed": CommitSettings,
}


def settings_model(item: str) -> type[ItemSettings]:
    """Return the model of an item's settings."""
    return SETTINGS.get(item, ItemSettings)
