"""A recorded run trained again in a fresh process, and compared bit for bit while it trains."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mltrainer.checkpointing.manifest import read_manifest, start_of
from mltrainer.configs.items import GradeSettings
from mltrainer.configs.pages import verification_page
from mltrainer.configs.project import config_digest
from mltrainer.errors import GateError, InputError, MltrainerError
from mltrainer.records import finalization as records
from mltrainer.records.common import Divergence
from mltrainer.records.job import TrainingJob
from mltrainer.records.partial import partial
from mltrainer.records.run import Chain, Run, RunResult, output_name, parsed_result
from mltrainer.reproducibility import fingerprint, grades
from mltrainer.runs.contract import JOB_FILE, RESULT_FILE, run_id
from mltrainer.runs.launcher import Tools
from mltrainer.runs.trainer import trainer_of
from mltrainer.workspace import Project, is_sealed, locked, plain, read_json

OUT_OF_TIME = "budget"  # why a run ended that was stopped by the clock: it is trained again up to that step
JOB_KEYS = frozenset(("config", "contract", "folder", "phase", "threads"))


@dataclass(frozen=True)
class Reproduction:
    """A run trained again.

    Attributes:
        row: The outcome, as records hold it.
        result: The result of the training itself.
        delivered: Whether it passed through the delivered weights; None if nobody looked, or the chain cannot show it.
    """

    row: records.Reproduction
    result: RunResult
    delivered: bool | None = None


def original_run(project: Project, run: str) -> tuple[RunResult, TrainingJob]:
    """Return the result of an ended run and its job, with the splits of the run, verified as far as a reproduction needs them.

    Raises:
        InputError: The run is not here, or has not ended.
        GateError: One of its files was changed after the run.
    """
    folder, job = project.runs_dir / run, original_job(project, run)
    if not (folder / RESULT_FILE).exists():
        raise InputError(f"run {run} has not ended", hint=_train_again(folder))
    content = _own_file(project, folder / RESULT_FILE, frozenset(("state", "id")))
    result = partial(RunResult, content)
    if result.state not in ("finished", "failed", "pruned") and result.stop_reason != OUT_OF_TIME:
        raise InputError(f"run {run} is {result.state}, not finished", hint=_train_again(folder))
    if not is_sealed(content):
        raise _damaged(project, folder / RESULT_FILE, "it was edited: its content does not match its seal")
    if result.id != run or any(content.get(key) != value for key, value in job.contract.items()):
        raise _damaged(project, folder / RESULT_FILE, f"it is the result of another run, {result.id}")
    try:
        result = parsed_result(content, RunResult)
    except MltrainerError as error:
        raise _damaged(project, folder / RESULT_FILE, error.message) from error
    _verify_chain(project, folder / fingerprint.CHAIN_FILE, result)
    return result, job.model_copy(update={"splits": result.splits or []})


def original_job(project: Project, run: str) -> TrainingJob:
    """Return the job of a run, verified to determine its name.

    Raises:
        InputError: The run is not here.
        GateError: The job was changed.
    """
    folder = project.runs_dir / run
    if not (folder / JOB_FILE).exists():
        raise InputError(
            f"run {run} is not here: {project.relative(folder)} stays where it was trained", hint=_train_again(folder)
        )
    try:
        job = TrainingJob.model_validate(_own_file(project, folder / JOB_FILE, JOB_KEYS))
    except ValidationError as error:
        raise _damaged(project, folder / JOB_FILE, f"it is not the job of run {run}") from error
    if not _is_job_of(run, job):
        raise _damaged(project, folder / JOB_FILE, f"it is not the job of run {run}")
    return job


def _is_job_of(run: str, job: TrainingJob) -> bool:
    """Return True if a job's config and contract are those that gave the run its name."""
    named = run_id(job.contract) == run and config_digest(job.config) == job.contract.get("config_sha256")
    # The job's own threads are no part of the name, and decide bits: edited, they would train something else under it.
    return named and job.config.threads == job.threads


def _own_file(project: Project, path: Path, keys: frozenset[str]) -> dict[str, Any]:
    try:
        values = read_json(path)
    except InputError as error:
        raise _damaged(project, path, error.message) from error
    if not isinstance(values, dict) or (missing := sorted(keys - set(values))):
        raise _damaged(project, path, f"it lacks {', '.join(missing)}" if isinstance(values, dict) else "it holds no mapping")
    return values


def _damaged(project: Project, path: Path, why: str) -> GateError:
    again = f"restore the file, or remove {project.relative(path.parent)} and train it again: {_train_again(path.parent)}"
    return GateError(f"damaged: {why}", where=project.relative(path), hint=again)


def _train_again(folder: Path) -> str:
    """Return the command that trains a run of this folder again."""
    names = []
    for name in (JOB_FILE, RESULT_FILE):
        with contextlib.suppress(InputError, KeyError, TypeError):
            names.append(str(read_json(folder / name)["phase"]))
    if not names:
        return "mltrainer run"
    return "mltrainer ablate" if names[0] == "ablation" else f"mltrainer phase run {names[0]}"


def _verify_chain(project: Project, path: Path, result: RunResult) -> None:
    """Raise a `GateError` if a chain does not end in the head and last weights of the result; a bad line is named."""
    lines = fingerprint.read(path)
    try:
        head = fingerprint.verify(lines, project.relative(path))
    except GateError as error:
        raise _damaged(project, path, f"line {(error.where or '').rpartition(':')[2]}: {error.message}") from error
    chain = Chain(entries=head.entries, head=head.value)
    if chain != result.chain:
        raise _damaged(project, path, f"its result has {result.chain.model_dump()}, the file {chain.model_dump()}")
    if fault := fingerprint.tree_fault(fingerprint.last_tree(lines), result.steps, result.weights_tree_sha256):
        raise _damaged(project, path.with_name(RESULT_FILE), fault)


def reproduce(
    tools: Tools, run: str, max_steps: int | None = None, *, to_the_end: bool = False, seeds: Sequence[float] = ()
) -> Reproduction:
    """Train a recorded run again in a fresh process and compare the two chains while it trains.

    Args:
        tools: The project's tools.
        run: The run's id.
        max_steps: The number of steps to compare, counted from where the run began to train: for a fork, after its parent's step.
        to_the_end: Go on after a difference, because the environment is known to be another; so it is, unasked, where the
            numerics class is another. The numbers are compared then.
        seeds: The metric of the same config under other seeds, for the grade.

    Raises:
        InputError: There is no such finished run, or none of its steps would be compared.
        GateError: The run's own files are damaged.
    """
    if max_steps is not None and max_steps < 1:
        raise InputError(
            expected="at least one step to compare", found=max_steps, where="steps", hint="--steps 1, or leave it out"
        )
    project = tools.project
    result, job = original_run(project, run)
    begun = step_before(project.runs_dir / run, job.contract)
    if max_steps is None and result.stop_reason == OUT_OF_TIME:
        max_steps = result.steps - begun
    if max_steps is not None:
        max_steps = _past_spikes(result, begun + max_steps) - begun
    limits = verification_page(project.root).settings
    folder = project.state_dir / "reproductions" / run
    # The lock is beside the folder: inside it would be removed with it, and a second process would lock a new one.
    with locked(project.state_dir / "reproductions" / f"{run}.lock", f"the reproduction of {run}"):
        shutil.rmtree(folder, ignore_errors=True)
        again = {
            "purpose": "reproduction",
            "folder": project.relative(folder),
            "compare": project.relative(project.runs_dir / run),
            "start_of": project.relative(project.runs_dir / run),
            "max_steps": None if max_steps is None else begun + max_steps,
            "expected_numerics": result.numerics_class,
            "to_the_end": to_the_end,
            "resumable": job.config.goes_back,
        }
        again_result = trainer_of(tools, job).run(job.model_copy(update=again))
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # which it needs only to go back
        chains = (fingerprint.read(path / fingerprint.CHAIN_FILE) for path in (project.runs_dir / run, folder))
        numbers = numbers_of(result, again_result, grades.largest_loss_difference(*chains), seeds)
    reachable = grades.NUMERICAL if to_the_end or computes_otherwise(result, again_result) else grades.BITWISE
    row = reproduction_row(result, again_result, numbers, limits, reachable, begun)
    if max_steps is not None and not row.steps_compared and row.first_divergence is None:
        raise InputError(
            f"no step of run {run} was seen again, so none could be compared",
            hint=f"mltrainer reproduce {run}, which trains to the end and compares its output",
        )
    return Reproduction(row, again_result)


def _past_spikes(result: Run, step: int) -> int:
    """Return a step, or the spike because of which it was left out: before it, a reproduction would take the step."""
    for row in result.skipped or ():
        if row.leaves_out(step) and step < row.step:
            step = row.step
    return step


def is_class_of_environment(result: Run) -> bool:
    """Return True if a run's arithmetic was not measured, as of a program: its class is the digest of the whole environment."""
    return result.numerics_class == result.environment_sha256


def computes_otherwise(result: Run, again: Run) -> bool:
    """Return True if a reproduction was measured to be of another numerics class than the original.

    The digest of the whole environment shows none: a package that the code cannot reach changes it, too. The environments
    themselves are compared, before the training, by what the code can reach.
    """
    return not is_class_of_environment(result) and again.numerics_class != result.numerics_class


def step_before(folder: Path, contract: Mapping[str, str]) -> int:
    """Return the step after which the run of a folder began to train: 0, or for a fork the step of its parent's checkpoint.

    Raises:
        GateError: The checkpoint that it began with is damaged, or not the one that its contract names.
    """
    start = start_of(folder, contract)
    return 0 if start is None else read_manifest(start).step


def numbers_of(result: Run, again: Run, loss: float, seeds: Sequence[float] = ()) -> grades.Numbers:
    """Return the numbers that grade two trainings: the losses' difference as given, the chosen metrics' difference measured."""
    name = result.metric.name
    left, right = (float(side.metrics.get(name, "nan")) for side in (result, again))
    return grades.Numbers(loss, abs(left - right), seeds, max(1.0, abs(left), abs(right)))


def reproduction_row(
    result: Run,
    again: Run,
    numbers: grades.Numbers,
    limits: GradeSettings,
    reachable: str,
    begun: int = 0,
    parted: Divergence | None = None,
) -> records.Reproduction:
    """Return a reproduction's row of the record: whether its bits are identical, its grade, and its first divergence.

    Args:
        result: The original's result.
        again: The reproduction's, which may have ended early: on purpose, or at the first difference.
        numbers: The differences of their numbers; they are judged only if the reproduction went to its end.
        limits: The limits of the grades.
        reachable: The best grade that this machine can reach.
        begun: The step after which both began to train.
        parted: The first difference, if the reproduction itself could not know it.
    """
    is_as_far = result.stop_reason == OUT_OF_TIME and again.steps == result.steps
    in_part = again.stop_reason == "max_steps" and not is_as_far
    divergence = again.first_divergence or parted or (None if in_part else _unlike_metric(result, again))
    same_end = in_part or (again.weights_sha256, again.metrics) == (result.weights_sha256, result.metrics)
    same_end = same_end and (in_part or again.weights_tree_sha256 == result.weights_tree_sha256)
    left = _same_outputs(result, again) if result.program and not in_part else None
    same_end = same_end and all((left or {}).values())
    identical = divergence is None and same_end and again.data_sha256 == result.data_sha256
    went_on = not identical and again.stop_reason == result.stop_reason and again.steps == result.steps
    extra = {"weights_tree_sha256": again.weights_tree_sha256, "outputs": left}
    more: dict[str, Any] = {key: value for key, value in extra.items() if value is not None}  # other records have no such entry
    return records.Reproduction(
        run=result.id,
        identical=identical,
        grade=grades.BITWISE if identical else grades.grade(numbers, limits) if went_on else grades.NOT,
        reachable=reachable,
        loss_difference=plain(numbers.loss_difference) if went_on else None,
        metric_difference=plain(numbers.metric_difference) if went_on else None,
        steps_compared=max(0, min(again.steps, result.steps, *([divergence.step] if divergence else [])) - begun),
        first_divergence=divergence,
        weights_sha256=again.weights_sha256,
        chain_head=again.chain.head,
        wall_s=again.wall_s,
        **more,
    )


def _unlike_metric(result: Run, again: Run) -> Divergence | None:
    """Return the last evaluation's first metric that differs, as records hold the first difference; None if all are the same."""
    one, other = result.metrics, again.metrics
    name = next((name for name in {**one, **other} if one.get(name) != other.get(name)), None)
    if name is None:
        return None
    return Divergence(step=result.steps, what=f"metric {name}", expected=str(one.get(name)), found=str(other.get(name)))


def _same_outputs(result: Run, again: Run) -> dict[str, bool]:
    """Return, for each file that the trained code left, by name, whether it left the same one again."""
    kept, other = _output_digests(result), _output_digests(again)
    return {name: other.get(name) == sha256 for name, sha256 in kept.items()}


def _output_digests(side: Run) -> dict[str, str]:
    """Return the digests of the files that the trained code left, by name: the ones compared if no step was seen."""
    compared = (side.program.left if side.program else None) or {}
    names = {output_name(row.path): row.sha256 for row in side.outputs}
    return {name: compared.get(name, sha256) for name, sha256 in names.items()}
