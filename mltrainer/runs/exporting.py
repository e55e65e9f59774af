"""Runs the checkpoint manager on a run's best checkpoint: exports, each compared with the trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError, InputError
from mltrainer.records.common import Export, Number, Part
from mltrainer.records.finalization import Combination, Conformal, Test
from mltrainer.records.job import Combined, ExportJob, TestOpening
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import digest

MANAGER = "checkpoint_manager"


class ExportSettings(Part):
    """The production template's settings of an export; `trained`: the trained weights in place of averaged ones."""

    formats: list[str]
    samples: int
    tolerance: Number
    metric_loss: Number = 0.0
    calibration_samples: int = 0
    trained: bool = False


class Exported(Part):
    """The exported formats, the model's call and answer, its weights, and the test split's metrics."""

    exports: list[Export]
    inference: dict[str, Any]
    weights_sha256: str
    weights_tree_sha256: str | None = None
    test: Test
    conformal: Conformal | None = None


def combined(combination: Combination, config: TrainingConfig) -> Combined:
    """Return a combination as it is built again, by its members' configs; `config` is for members without one."""
    used = [member for member in combination.members if member.used] if combination.how == "ensemble" else []
    configs = [TrainingConfig.model_validate(member.config) if member.config else config for member in used]
    return Combined(files=combination.files, how=combination.how, configs=configs)


def run_manager(
    tools: Tools,
    result: RunResult,
    config: TrainingConfig,
    out: Path,
    export: ExportSettings,
    test: TestOpening | None,
    combination: Combination | None = None,
    *,
    is_delivery: bool = False,
) -> Exported:
    """Export a run's best checkpoint and return the tool's result.

    Args:
        tools: The project's tools.
        result: The run's result.
        config: The run's config.
        out: The folder to write.
        export: The export's settings.
        test: The measurement of the sealed test split, which opens it; None leaves it sealed.
        combination: The combination to export in place of the best checkpoint.
        is_delivery: Whether it is finalization's, whose result the gate compares with the record; no other export replaces it.

    Raises:
        InputError: The run is a program's.
        GateError: The run has no verified best checkpoint.
    """
    best = result.best_checkpoint
    if best is None and result.program:
        message = f"run {result.id} was trained by a program: it has output files, and no checkpoint to export"
        raise InputError(message, hint="export the model within the program, and name the file in task.outputs")
    if best is None:
        raise GateError(f"run {result.id} has no verified best checkpoint", hint="mltrainer checkpoints verify")
    project = tools.project
    folder = project.state_dir / "exports" / (result.id if is_delivery else f"{result.id}-{digest(str(out.resolve()))[:12]}")
    job = ExportJob(
        run=result.id,
        folder=project.relative(folder),
        run_folder=project.relative(project.runs_dir / result.id),
        checkpoint=combination.path if combination else best.path,
        config=config,
        out=project.relative(out.resolve()),
        **export.model_dump(),
        test=test,
        threads=config.threads,
    )
    if combination is not None:
        job = job.model_copy(update={"combined": combined(combination, config)})
    return partial(Exported, tools.run(MANAGER, job))
