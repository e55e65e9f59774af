"""What a phase's next tools import, begun while one trains: never where it would slow down the steps that are measured."""

from __future__ import annotations

from collections.abc import Sequence

from mltrainer.configs.project import TrainingConfig
from mltrainer.phases.context import Context
from mltrainer.reproducibility.environment import available_mb, cores

SPARE_MB = 2048  # chosen by us: torch with the compiler and scikit-learn takes less than half


def prepare(ctx: Context, config: TrainingConfig, peak_mb: float, tools: Sequence[str], formats: Sequence[str] = ()) -> None:
    """Begin to import what tools need beside a training, where there is room.

    Args:
        ctx: The phase's.
        config: The training's, with its loader processes.
        peak_mb: The memory that the training takes.
        tools: The tools' ids in the handbook.
        formats: Of an export to come.
    """
    if has_room(config, cores(), available_mb() - peak_mb):
        ctx.prepare(config, tools, formats)


def has_room(config: TrainingConfig, cores: int, spare_mb: float) -> bool:
    """Return True if another process beside a training leaves its steps and its memory alone.

    Args:
        config: The training's.
        cores: The cores that the two may use.
        spare_mb: The memory in MiB that the training leaves.
    """
    return config.device == "cpu" and config.threads + config.loader.processes < cores and spare_mb >= SPARE_MB
