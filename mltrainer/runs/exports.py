"""`mltrainer checkpoints export`: any run's best checkpoint, in any format, without opening the test split."""

from __future__ import annotations

from pathlib import Path

from mltrainer.checkpointing.deployment import MANIFEST_FILE
from mltrainer.configs.project import TrainingConfig
from mltrainer.configs.templates import production_template
from mltrainer.errors import InputError
from mltrainer.records.common import Export
from mltrainer.records.run import RunResult, read_result
from mltrainer.runs.contract import RESULT_FILE
from mltrainer.runs.exporting import ExportSettings, run_manager
from mltrainer.runs.find import config_of
from mltrainer.runs.launcher import Tools
from mltrainer.workspace import Project, locked_project, read_if_whole

ANOTHER = "--to a new folder"


def settings_of(project: Project, formats: tuple[str, ...], *, trained: bool = False) -> ExportSettings:
    """Return the production template's export with other formats; none are those of the template."""
    chosen = ExportSettings(**{**production_template(project.root)["export"], "trained": trained})
    return chosen.model_copy(update={"formats": list(formats) or chosen.formats})


def export_run(
    tools: Tools, run: str, formats: tuple[str, ...], out: Path, *, trained: bool = False, step: int | None = None
) -> list[Export]:
    """Export a run's best checkpoint, or another one, and return one row per format.

    Args:
        tools: The project's tools.
        run: The run's id.
        formats: The formats to write; empty: all of the production template.
        out: The folder to write: a new one, an empty one, or that of an earlier export, whose files are replaced.
        trained: Export the trained weights also where averaged ones are delivered.
        step: The step of the checkpoint; None: the best one.

    Raises:
        InputError: There is no such finished run here, or it has no verified checkpoint of that step; or the folder holds
            other files.
        GateError: The checkpoint is damaged.
    """
    project = tools.project
    _require_own(project, out)
    result = read_result(project.runs_dir / run / RESULT_FILE, RunResult)
    config = TrainingConfig.model_validate(config_of(project, run))
    if step is not None:
        result = _with_best(result, step)
    with locked_project(project):
        return run_manager(tools, result, config, out, settings_of(project, formats, trained=trained), None).exports


def _require_own(project: Project, out: Path) -> None:
    """Refuse a folder whose files an export did not write, and the delivered model's.

    Raises:
        InputError: It is such a folder.
    """
    place, phases = out.resolve(), (project.root / "phases").resolve()
    if phases in (place, *place.parents):
        raise InputError("a phase writes this folder", where=str(out), hint=ANOTHER)
    is_own = out.is_dir() and (not any(out.iterdir()) or "exports" in read_if_whole(out / MANIFEST_FILE))
    if out.exists() and not is_own:
        raise InputError("it holds files that no export wrote: nothing is written over them", where=str(out), hint=ANOTHER)


def _with_best(result: RunResult, step: int) -> RunResult:
    """Return a result whose best checkpoint is the one of a step."""
    rows = [row for row in result.checkpoints if row.verified and row.step == step]
    if not rows:
        there = [row.step for row in result.checkpoints if row.verified]
        raise InputError.unknown("step", step, there, of=f"with a verified checkpoint of run {result.id}", where="--step")
    return result.model_copy(update={"checkpoints": [row.model_copy(update={"roles": ["best"]}) for row in rows]})
