"""A run trained again from the committed record alone: so a clone, which has no run's files, measures a claim."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mltrainer.configs.pages import trained_by, verification_page
from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.errors import GateError
from mltrainer.programs.leftover_files import first_unlike
from mltrainer.records.common import Divergence
from mltrainer.records.envelope import Envelope
from mltrainer.records.job import TrainingJob
from mltrainer.records.planning import Planning
from mltrainer.records.reading import sound_record
from mltrainer.records.run import Run
from mltrainer.reproducibility import fingerprint, grades
from mltrainer.runs.contract import JOB_FILE, planned_files, run_id
from mltrainer.runs.launcher import Tools
from mltrainer.runs.retrain import Reproduction, computes_otherwise, is_class_of_environment, numbers_of, reproduction_row
from mltrainer.runs.trainer import trainer_for
from mltrainer.workspace import TRAINING, Project, locked, write_text


def recorded_run(project: Project, run: str) -> tuple[str, Run] | None:
    """Return the phase and the result of a run that is in a sound record and whose own files are not here, or None."""
    if (project.runs_dir / run / JOB_FILE).exists():
        return None
    return next(((phase, recorded) for phase, _, recorded in sound_runs(project) if recorded.id == run), None)


def sound_runs(project: Project) -> Iterator[tuple[str, Envelope[Any], Run]]:
    """Yield each phase whose sound record holds a run, with both; the later first: only it has a run's delivered files."""
    for phase in reversed(TRAINING):
        record = sound_record(project, phase)
        if record is not None and record.evidence.run is not None:
            yield phase, record, record.evidence.run


def reproduce_recorded(tools: Tools, phase: str, result: Run, *, elsewhere: bool = False) -> Reproduction:
    """Train a run from the config that its phase's record holds, and compare its end with what the record claims.

    The head of the chain covers every step's samples, loss and gradient norm, so that equal heads are equal steps.

    Args:
        tools: The project's tools.
        phase: The phase whose record claims it.
        result: The run, as the record has it.
        elsewhere: Whether the environment is known to be another one.

    Raises:
        InputError: The data is not here, or the run is none that a record holds the whole of.
        GateError: The recorded config is not the one that the run is named by.
    """
    project = tools.project
    limits = verification_page(project.root).settings
    folder = project.state_dir / "reproductions" / result.id
    job = recorded_job(project, phase, result, folder)
    keep_out_of_git(project)
    with locked(folder.with_suffix(".lock"), f"the reproduction of {result.id}"):
        shutil.rmtree(folder, ignore_errors=True)
        page = trained_by(phase, project.root, job.config.task.trainer)
        again = trainer_for(tools, page.tool, phase).run(job.model_copy(update={"resumable": job.config.goes_back}))
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        delivered = _delivered(project, phase, fingerprint.read(folder / fingerprint.CHAIN_FILE), again)
    is_other = computes_otherwise(result, again) or (elsewhere and is_class_of_environment(result))
    reachable = grades.NUMERICAL if is_other else grades.BITWISE
    row = reproduction_row(result, again, _numbers(result, again), limits, reachable, parted=_divergence(result, again))
    return Reproduction(row, again, delivered)


def keep_out_of_git(project: Project) -> None:
    """Make git ignore runs and checkpoints also in a clone, or in a project that was written by hand."""
    path = project.state_dir / ".gitignore"
    if not path.exists():
        write_text(path, "*\n")


def _sound(project: Project, phase: str) -> Envelope[Any]:
    record = sound_record(project, phase)
    if record is None:
        raise GateError(f"{phase} has no sound record to train from", hint=f"mltrainer gate check {phase}")
    return record


def _config(project: Project, phase: str, result: Run, planning: Envelope[Any]) -> TrainingConfig:
    """Return the config that names a run, with the number of loader processes that planning chose."""
    evidence = planning.evidence if phase == "baseline" else _sound(project, phase).evidence
    config = TrainingConfig.model_validate(evidence.config)
    if run_id(result.contract) != result.id or config_digest(config) != result.config_sha256:
        raise GateError(
            f"the record of {phase} does not hold the config and the contract that determine the name of run {result.id}",
            hint=f"mltrainer gate check {phase}",
        )
    loader = getattr(planning.evidence, "loader", None)  # planning that stopped early measured none
    return config.with_workers(loader.workers if loader is not None else 0)


def recorded_job(project: Project, phase: str, result: Run, folder: Path) -> TrainingJob:
    """Return the job that trains a run again in a folder, from the records alone.

    Raises:
        GateError: The recorded config is not the one that the run is named by.
    """
    planning = _sound(project, "planning")
    config = _config(project, phase, result, planning)
    measured = isinstance(planning.evidence, Planning)  # not where it stopped early
    files: dict[str, Any] = planned_files(planning.evidence) if measured else {}
    return TrainingJob(
        run=result.id,
        phase=phase,
        purpose="reproduction",
        folder=project.relative(folder),
        config=config,
        gate=result.gate,
        contract=result.contract,
        code_files=planning.source.files,
        parent=result.parent,
        threads=config.threads,
        expected_numerics=result.numerics_class,
        to_the_end=True,
        splits=result.splits or [],
        delivers_after=result.best_checkpoint.step if result.best_checkpoint else None,
        **files,
    )


def _divergence(result: Run, again: Run) -> Divergence | None:
    """Return the difference of the chains' heads, at the last step, or None: a record holds only the chain's head."""
    one, other = result.chain, again.chain
    if one == other:
        return None
    if result.program and again.program and result.program.left and again.program.left:
        return first_unlike(result.program.left, again.program.left)
    return Divergence(step=result.steps, what="head of the chain", expected=one.head, found=other.head)


def _numbers(result: Run, again: Run) -> grades.Numbers:
    """Return the largest relative difference of the mean training losses by evaluation, and the metric's absolute one."""
    pairs = zip(_losses(result), _losses(again), strict=False)
    # The last bound is for two losses of 0, which would divide by zero.
    return numbers_of(result, again, max((abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs), default=math.nan))


def _losses(result: Run) -> list[float]:
    return [float(row.train_loss) for row in result.history if row.train_loss is not None]


def _delivered(project: Project, phase: str, chain: Sequence[str], again: Run) -> bool | None:
    """Return True if the training passed through the delivered weights; None if the chain cannot show it."""
    evidence = _sound(project, phase).evidence
    if phase != "finalization" or evidence.run.program or evidence.config.get("averaging"):
        return None
    if evidence.delivered_combination:  # of several models, which no chain passes through
        return None
    if trees := fingerprint.trees_of(chain):
        return evidence.delivered_tree_sha256 in trees.values() and again.delivered_sha256 == evidence.delivered_sha256
    passed = {words[2] for words in map(str.split, chain) if words[0] == "w"}
    return evidence.delivered_sha256 in passed
