"""`mltrainer fork`: a new run that begins with another run's checkpoint, under the present contract, linked to its parent.

It is the only way on where a run cannot be resumed because code, config, data, environment or machine are others. A fork is
a run to look at, compare and export; no gate takes it for evidence, because its first steps belong to another contract.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.manifest import START_FOLDER, faults, folders, newest_intact, origin_of, read_manifest
from mltrainer.configs.loading import apply, validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError, InputError
from mltrainer.gates.gate import gates_before
from mltrainer.leftovers import new_folder
from mltrainer.records.common import Metrics
from mltrainer.records.job import TrainingJob
from mltrainer.records.reading import Record
from mltrainer.runs.contract import contract_changes, contract_of, existing_result, planned_files, run_id
from mltrainer.runs.launcher import Tools
from mltrainer.runs.retrain import original_job
from mltrainer.runs.trainer import trainer_of
from mltrainer.workspace import Project, digest, locked_project

# Not the parent's: rungs, by which a search ended it early, and the files that its planning opened.
ENDING = frozenset(("schema_number", "rungs", "data_files", "input_files"))


@dataclass(frozen=True)
class Fork:
    """A run that began with another run's checkpoint.

    Attributes:
        run: Its id.
        parent: The other run.
        step: The step of the checkpoint.
        changes: The differences from the parent's contract.
        state: The state in which the run ended.
        metrics: The metrics of its best evaluation.
    """

    run: str
    parent: str
    step: int
    changes: list[str]
    state: str
    metrics: Metrics

    def written(self) -> dict[str, Any]:
        """Return the fork as `fork --json` prints it."""
        return {key: value for key, value in vars(self).items() if key != "state"}


def fork(tools: Tools, parent: str, step: int | None, assignments: tuple[str, ...]) -> Fork:
    """Train a new run from a checkpoint of another one; an interrupted fork of the same kind is resumed.

    Args:
        tools: The project's tools.
        parent: The run to begin with.
        step: The step of the checkpoint; None for the newest intact one.
        assignments: `KEY=VALUE` changes of the parent's config.

    Raises:
        GateError: Planning's gate does not hold, or the checkpoint is damaged.
        InputError: There is no such checkpoint, or it does not fit the changed config.
    """
    project = tools.project
    with locked_project(project):
        (planning,) = gates_before(project, "baseline")  # under the lock: no phase can replace its record meanwhile
        assert planning.record is not None
        job = original_job(project, parent)
        trainer = trainer_of(tools, job)
        if "checkpoints" not in trainer.capabilities:
            what = f"run {parent} was trained by {trainer.page.tool}, whose runs leave no checkpoint to begin with"
            raise InputError(what, hint="name a run that mltrainer trained: mltrainer runs list")
        config = validate_values(TrainingConfig, *apply(job.config.model_dump(), assignments, f"the config of run {parent}"))
        start = _checkpoint(project, parent, step)
        contract = {**contract_of(planning.record, config, project.root), "parent_sha256": digest(origin_of(start))}
        run = run_id(contract)
        changes = contract_changes(job, contract, config)
        if (result := existing_result(project, run, contract)) is None:
            _copy(start, project.runs_dir / run / START_FOLDER)
            kept = {key: getattr(job, key) for key in job.model_fields_set - ENDING}
            own = {"run": run, "parent": parent, "config": config, "contract": contract, "threads": config.threads}
            result = trainer.run(TrainingJob(**{**kept, **own, **_place(project, run, planning.record)}))
    return Fork(run, parent, read_manifest(start).step, changes, result.state, result.metrics)


def _place(project: Project, run: str, planning: Record) -> dict[str, Any]:
    """Return a fork's job entries: its folder, its purpose, the planned files and the digest of planning's record."""
    planned, folder = planning.trusted, project.relative(project.runs_dir / run)
    own = {"folder": folder, "purpose": "train", "code_files": planned.source.files, "gate": planning.sha256}
    return {**own, **planned_files(planned.evidence)}


def _checkpoint(project: Project, run: str, step: int | None) -> Path:
    """Return the folder of a run's checkpoint, whose files match its manifest."""
    folder = project.runs_dir / run / "checkpoints"
    known = {read_manifest(path).step: path for path in folders(folder) if not faults(path)}
    if step is not None and step not in known:
        of = f"with an intact checkpoint of run {run}"
        raise InputError.unknown("step", step, sorted(known), of=of, hint="mltrainer checkpoints list")
    checkpoint = known[step] if step is not None else newest_intact(folder)[0]
    if checkpoint is None:
        raise GateError(f"run {run} has no intact checkpoint", hint="mltrainer checkpoints verify")
    return checkpoint


def _copy(checkpoint: Path, folder: Path) -> None:
    """Keep a copy of the checkpoint with the fork, so that the fork can be reproduced after the parent has deleted it."""
    if not (folder / checkpoint.name).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: killed while copying, a fork would else begin with half a checkpoint.
        with new_folder(folder.parent) as temporary:
            shutil.copytree(checkpoint, temporary / checkpoint.name)
            temporary.rename(folder)
