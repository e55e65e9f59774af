"""`mltrainer checkpoints export`: any run's best checkpoint, in any format, without opening the test split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import production_template
from mltrainer.runs.exporting import run_manager
from mltrainer.workspace import LOCK_FILE, Project, locked, read_json


def export_run(
    project: Project, run: str, formats: tuple[str, ...], out: Path, tell: Any, *, trained: bool = False
) -> list[dict[str, Any]]:
    """Export a run's best checkpoint and return one row per format.

    Args:
        project: The project.
        run: The run's id.
        formats: What to write; all of the production template where it is empty.
        out: The folder to write.
        tell: Shows progress.
        trained: Export the trained weights also where averaged ones are delivered.

    Raises:
        InputError: There is no such finished run here.
        GateError: Its best checkpoint is damaged.
    """
    folder = project.runs_dir / run
    result = read_json(folder / "result.json")
    config = TrainingConfig.model_validate(read_json(folder / "job.json")["config"])
    export = production_template(project.root)["export"]
    chosen = {**export, "formats": list(formats) or export["formats"]}
    with locked(project.state_dir / LOCK_FILE, f"the project {project.root.name}"):
        return list(run_manager(project, result, config, out, {**chosen, "trained": trained}, False, tell)["exports"])
