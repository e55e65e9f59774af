"""Imports of a phase's next tools, begun during a training: never where they would slow down the measured steps."""

from __future__ import annotations

from collections.abc import Sequence

from mltrainer.configs.project import TrainingConfig
from mltrainer.phases.context import Context
from mltrainer.reproducibility.environment import available_mb, cores

SPARE_MB = 2048  # chosen by us: torch with the compiler and scikit-learn takes less than half


def prepare(ctx: Context, config: TrainingConfig, peak_mb: float, tools: Sequence[str], formats: Sequence[str] = ()) -> None:
    """Begin the imports of tools beside a training, where there is room.

    Args:
        ctx: The phase's context.
        config: The training's config, with its loader processes.
        peak_mb: The training's peak memory in MiB.
        tools: The tools' ids in the handbook.
        formats: The formats of an export to come.
    """
    if has_room(config, cores(), available_mb() - peak_mb):
        ctx.prepare(config, tools, formats)


def has_room(config: TrainingConfig, cores: int, spare_mb: float) -> bool:
    """Return True if another process beside a training does not slow its steps or take its memory.

    Args:
        config: The training's config.
        cores: The number of cores that the two may use.
        spare_mb: The memory in MiB that the training leaves free.
    """
    return config.device == "cpu" and config.threads + config.loader.processes < cores and spare_mb >= SPARE_MB
