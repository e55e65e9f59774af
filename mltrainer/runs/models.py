"""The weights that a project's records name, verified and loaded into the task's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError, InputError
from mltrainer.records.common import digests_by_name
from mltrainer.records.partial import partial
from mltrainer.records.reading import read_record
from mltrainer.records.run import RunResult
from mltrainer.runs.exporting import combined
from mltrainer.runs.find import config_of, result_of
from mltrainer.workspace import Project

if TYPE_CHECKING:
    from torch import nn

    from mltrainer.records.finalization import Finalization

WEIGHTS_FILE = "model.safetensors"
FINISH = "mltrainer run"


def best_model(project: Project, run: str, *, trained: bool = False) -> nn.Module:
    """Return the task's model with the weights of a run's best checkpoint.

    Args:
        project: The project.
        run: The run's id.
        trained: The trained weights, where averaged ones are delivered.

    Raises:
        InputError: The run has no checkpoint that was verified, or it is not here.
        GateError: A file differs from the run's result.
    """
    from mltrainer.checkpointing.loading import from_checkpoint

    result = partial(RunResult, result_of(project, run) or {})
    _refuse_program(result.program is not None, run)
    best = result.best_checkpoint
    if best is None:
        raise InputError(f"run {run} has no verified best checkpoint", hint=FINISH)
    folder = project.root / best.path
    if not folder.is_dir():
        raise InputError("the checkpoint is missing: weights are not in git", where=best.path, hint="restore it")
    expected = digests_by_name(best.files)
    return from_checkpoint(_config(config_of(project, run)), project.root, folder, expected, trained=trained)


def final_model(project: Project) -> nn.Module:
    """Return the task's model with the weights that finalization delivered.

    Raises:
        InputError: Finalization has not run, or its weights are not here.
        GateError: The record was edited, or the file differs from it.
    """
    from mltrainer.checkpointing.loading import from_safetensors

    record = read_record(project, "finalization")
    if record is None:
        raise InputError("finalization has not run, so there is no final model", hint=FINISH)
    if record.faults:
        raise GateError(record.faults[0], hint="mltrainer gate check finalization")
    final: Finalization = record.trusted.evidence
    _refuse_program(final.run.program is not None, final.run.id)
    row = next((row for row in final.model_files if Path(row.path).name == WEIGHTS_FILE), None)
    if row is None:
        raise InputError(f"finalization wrote no {WEIGHTS_FILE}", hint='load_model(project, "finalization") takes the checkpoint')
    config, made = _config(final.config), final.delivered_combination
    members = combined(made, config).configs if made else []
    return from_safetensors(config, project.root, project.root / row.path, row, members)


def _refuse_program(is_program: bool, run: str) -> None:
    if is_program:
        message = f"run {run} was trained by a program: only that program can load its files"
        raise InputError(message, hint="load them by your own code; the delivered ones are in phases/05_finalization/final_model")


def _config(values: dict[str, Any]) -> TrainingConfig:
    return TrainingConfig.model_validate(values)
