"""The settings of phases and of gates' items: what each may be; only one that came later has a default, as pages meant before."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from mltrainer.configs.loading import Strict

LOWER: dict[str, JsonValue] = {"weaker": "lower"}  # of a setting: which way it asks for less
HIGHER: dict[str, JsonValue] = {"weaker": "higher"}


class ItemSettings(Strict):
    """An item without settings."""


class SourceSettings(ItemSettings):
    """`source_recorded`."""

    allow_dirty: bool = Field(description="whether a dirty tree may pass", json_schema_extra=HIGHER)


class ProbeSettings(ItemSettings):
    """`probe_identical`."""

    min_steps: int = Field(ge=1, description="the fewest steps in which both probes must agree", json_schema_extra=LOWER)


class MemorySettings(ItemSettings):
    """`memory_fits`."""

    max_share: float = Field(
        gt=0, le=1, description="the largest share of the free memory that the run may take", json_schema_extra=HIGHER
    )


class CheckpointSettings(ItemSettings):
    """`checkpoints_verified`."""

    demand: Literal["both", "configured"] = Field(
        "configured", description="both: the best and the last, whatever the config keeps"
    )
    described: bool = Field(
        False, description="the best checkpoint must be of the step by which the run is described", json_schema_extra=LOWER
    )


class UtilizationSettings(ItemSettings):
    """`gpu_utilization`."""

    min_percent: float = Field(ge=0, lt=100, description="the GPU must be busier than this", json_schema_extra=LOWER)


class CurvesSettings(ItemSettings):
    """`curves_analysed`."""

    min_evaluations: int = Field(ge=1, description="the fewest points of a learning curve", json_schema_extra=LOWER)


class ImprovementSettings(ItemSettings):
    """`improvement_validated`."""

    seeds: int = Field(
        ge=1, le=20, description="the fewest pairs; the exact test computes 2**seeds sums", json_schema_extra=LOWER
    )
    level: float = Field(gt=0, le=0.5, description="the largest p-value", json_schema_extra=HIGHER)


class ExportSettings(ItemSettings):
    """`exports_agree`."""

    tolerance: float = Field(
        gt=0, lt=1, description="the largest difference, relative to the largest output", json_schema_extra=HIGHER
    )
    metric_loss: float = Field(
        0.0,  # a page that allows none was written before there were quantized formats
        ge=0,
        lt=1,
        description="by which share of its value a quantized model's metric may be worse on validation",
        json_schema_extra=HIGHER,
    )


class DocumentSettings(ItemSettings):
    """`documentation_written`."""

    files: str = Field(min_length=1, description="names of the files that a deployment needs, between spaces")


class OpeningSettings(ItemSettings):
    """`test_opened_once`."""

    max_openings: int = Field(
        ge=1, description="of how many models the test split may have been looked at", json_schema_extra=HIGHER
    )


class AcceptanceSettings(ItemSettings):
    """`acceptance_met`."""

    split: Literal["test", "validation"] | None = Field(None, description="what decides; null: validation")
    coverage_level: float = Field(
        0.01,
        gt=0,
        le=0.5,
        description="sets or intervals that hold the truth less often than chance allows at this level break their promise",
        json_schema_extra=LOWER,
    )


class CommitSettings(ItemSettings):
    """`source_committed`."""

    allow_no_git: bool = Field(description="whether the files' digests do where there is no repository", json_schema_extra=HIGHER)


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


class DataLimits(Strict):
    """By what planning judges the data; the defaults hold where a page of a project's own declares none."""

    class_imbalance: float = Field(
        10,
        ge=1,
        description="more times as many training samples of one class as of another are reported",
        json_schema_extra=HIGHER,
    )
    leak_rows: float = Field(
        0.05, gt=0, le=1, description="this share of validation rows that training has too is leakage", json_schema_extra=HIGHER
    )
    chance_values: float = Field(
        10,
        ge=1,
        description="repeats may be chance where a table's columns can take fewer values than this times its training rows",
    )
    chance_distinct: float = Field(
        0.5, ge=0, le=1, description="repeats may be chance where a smaller share of a task's training samples is distinct"
    )
    leak_score: float = Field(
        0.995,
        gt=0,
        le=1,
        description="a column that predicts the target this well by itself is reported",
        json_schema_extra=HIGHER,
    )
    leak_r2: float = Field(
        0.995,
        gt=0,
        le=1,
        description="columns of a table that give a quantity of held-out training rows with this R2 are an error until answered",
        json_schema_extra=HIGHER,
    )
    leak_accuracy: float = Field(
        0.99, gt=0, le=1, description="the same for classes, as balanced accuracy", json_schema_extra=HIGHER
    )
    few_values: int = Field(50, ge=2, description="a column of at most this number of distinct values is checked value by value")
    rows_per_value: float = Field(5, ge=1, description="and only where each value has this number of rows on average")
    large_input: float = Field(100, gt=0, description="inputs of a larger magnitude are reported", json_schema_extra=HIGHER)


class PlanningSettings(DataLimits):
    """Planning's own."""

    probe_steps: int = Field(ge=1, description="steps that each probe trains", json_schema_extra=LOWER)
    loader_seconds: float = Field(gt=0, description="how long each number of loader processes is measured")
    loader_wait: float = Field(gt=0, lt=1, description="the share of the time that steps may wait for data")
    loader_least_s: float = Field(ge=0, description="where reading all samples takes less, no processes are started")
    advise_memory: float = Field(
        0.3, gt=0, description="the share of the free memory above which the planner says how to use less"
    )
    fine_tuning_small: float = Field(5e8, gt=0, description="a model of fewer parameters is small, for fine-tuning")
    fine_tuning_large: float = Field(3e9, gt=0, description="a model of more parameters is large, for fine-tuning")
    rate_small_low: float = Field(5e-5, gt=0, description="the usual learning rates of a small model, from")
    rate_small_high: float = Field(1e-4, gt=0, description="and to")
    rate_middle_low: float = Field(1e-5, gt=0, description="of one between small and large, from")
    rate_middle_high: float = Field(5e-5, gt=0, description="and to")
    rate_large_low: float = Field(5e-6, gt=0, description="of a large one, from")
    rate_large_high: float = Field(1e-5, gt=0, description="and to")
    warmup_low: float = Field(0.05, gt=0, lt=1, description="the usual share of the steps for the warm-up, from")
    warmup_high: float = Field(0.1, gt=0, lt=1, description="and to")


class FinalizationSettings(Strict):
    """Finalization's own; the defaults hold where a page of a project's own declares none."""

    interval_level: float = Field(0.95, gt=0, lt=1, description="the level of a metric's interval")
    interval_resamples: int = Field(1000, ge=100, description="resamples of the split; percentiles of fewer say little")
    interval_numbers: float = Field(3e8, gt=0, description="numbers of outputs and targets that all resamples may read")


PHASE_SETTINGS: dict[str, type[Strict]] = {"planning": PlanningSettings, "finalization": FinalizationSettings}


class GradeSettings(Strict):
    """By what a reproduction with other bits is graded; the defaults hold where a page of a project's own declares none."""

    loss_bound: float = Field(1e-3, gt=0, lt=1, description="the largest relative difference of a step's loss and of the metric")
    min_seeds: int = Field(3, ge=2, description="the fewest other seeds that give a spread")
    spread: float = Field(2.0, gt=0, description="standard deviations of the metric over these seeds")


def phase_settings_model(phase: str) -> type[Strict]:
    """Return the model of the settings that a phase itself reads."""
    return PHASE_SETTINGS.get(phase, ItemSettings)


def settings_model(item: str) -> type[ItemSettings]:
    """Return the model of an item's settings."""
    return SETTINGS.get(item, ItemSettings)


def is_weaker(phase: str, key: str, before: object, after: object) -> bool | None:
    """Return True if a new value of a setting is less strict, False if not; None where the setting has no such order.

    Args:
        phase: The phase.
        key: `ITEM.SETTING`, or `settings.SETTING` of the phase itself.
        before: Its value.
        after: The other one.
    """
    place, _, name = key.partition(".")
    if name == "waivable":
        return bool(after)
    field = (phase_settings_model(phase) if place == "settings" else settings_model(place)).model_fields.get(name)
    way = field.json_schema_extra if field else None
    if way is None or not isinstance(before, int | float) or not isinstance(after, int | float):
        return None
    return after > before if way == HIGHER else after < before
