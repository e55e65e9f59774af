"""`mltrainer checkpoints export`: any run's best checkpoint, in any format, without opening the test split."""

from __future__ import annotations

from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import production_template
from mltrainer.records.common import Export
from mltrainer.records.run import RunResult, read_result
from mltrainer.runs.contract import RESULT_FILE
from mltrainer.runs.exporting import ExportSettings, run_manager
from mltrainer.runs.find import config_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import locked_project


def export_run(tools: Tools, run: str, formats: tuple[str, ...], out: Path, *, trained: bool = False) -> list[Export]:
    """Export a run's best checkpoint and return one row per format.

    Args:
        tools: The project's tools.
        run: The run's id.
        formats: The formats to write; empty: all of the production template.
        out: The folder to write.
        trained: Export the trained weights also where averaged ones are delivered.

    Raises:
        InputError: There is no such finished run here.
        GateError: Its best checkpoint is damaged.
    """
    project = tools.project
    result = read_result(project.runs_dir / run / RESULT_FILE, RunResult)
    config = TrainingConfig.model_validate(config_of(project, run))
    chosen = ExportSettings(**{**production_template(project.root)["export"], "trained": trained})
    chosen = chosen.model_copy(update={"formats": list(formats) or chosen.formats})
    with locked_project(project):
        return run_manager(tools, result, config, out, chosen, None).exports
