"""`mltrainer reproduce`: a recorded run trained again, and the reasons if its bits differ."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field

from mltrainer.errors import GateError, InputError, MltrainerError
from mltrainer.executors.executor import Command
from mltrainer.executors.local import run as run_command
from mltrainer.observe.file_rows import rows_of_paths
from mltrainer.plugins import located
from mltrainer.records.common import Difference, Divergence, FileRow
from mltrainer.records.finalization import Compared
from mltrainer.records.job import TrainingJob
from mltrainer.records.optimization import Searched
from mltrainer.records.planning import Data, Environment
from mltrainer.records.reading import sound_record
from mltrainer.records.run import Run
from mltrainer.reproducibility import grades
from mltrainer.reproducibility.causes import sentence
from mltrainer.reproducibility.environment import capture, environment_digest
from mltrainer.runs.contract import OTHERS_RECORD, RESULT_FILE, environment_changes
from mltrainer.runs.launcher import Tools
from mltrainer.runs.localize import NOTHING, find_cause
from mltrainer.runs.rebuild import rebuild
from mltrainer.runs.recorded import recorded_run, reproduce_recorded
from mltrainer.runs.retrain import Reproduction, computes_otherwise, original_run, reproduce, step_before
from mltrainer.runs.trainer import trainer_of
from mltrainer.workspace import PHASES, Project, folder_sha256, sha256_file

UNDETERMINED = (
    "undetermined: two further processes agree with each other, so the original depended on something that is not "
    "recorded, or the difference is rare"
)


class Reproduced(Compared):
    """The outcome of training a run again, as `reproduce --json` prints it.

    Attributes:
        after_step: The step after which both began to train.
        is_without_steps: Whether it is a program's of which no step was seen; for the words alone.
        differences: The changes since the run was made.
        error: Why it could not be trained again.
        cause: Why bits differ although nothing else does, in words.
        record: The phase by whose record it was compared, where the run's own files are not here.
        delivered: The value of `retrain.Reproduction.delivered` if `record` is set.
    """

    after_step: int
    is_without_steps: bool = Field(False, exclude=True)
    differences: list[Difference]
    error: str | None
    cause: str | None
    record: str | None = None
    delivered: bool | None = None

    @property
    def holds(self) -> bool:
        """Whether the bits are the same, the delivered ones among them, in the same environment."""
        return self.identical and self.delivered is not False and not _is_elsewhere(self.differences)


def reproduce_run(tools: Tools, run: str, steps: int | None) -> Reproduced:
    """Train a run again and return the outcome.

    It trains in spite of differences, because only the bits show a difference's effect; where the
    changed code or data cannot be trained at all, that is the answer.

    Raises:
        InputError: The run has not ended, or it is not here.
        GateError: Its own files are damaged.
        MltrainerError: Training failed although nothing differs.
    """
    project = tools.project
    if (recorded := recorded_run(project, run)) is not None:
        return _from_record(tools, *recorded, steps)
    result, job = original_run(project, run)
    # An edited and resealed result is sound by itself: only the digest in a phase's record reveals it.
    refuse_edited(project, run)
    known = known_differences(project, result)
    try:
        again = reproduce(tools, run, steps, to_the_end=_is_elsewhere(known), seeds=_other_seeds(project, run))
    except (InputError, GateError) as error:
        if not known:
            raise
        return _untrained(run, known, error)
    differences = [*known, *_measured(result, again.result, known)]
    # Two more trainings only where nothing that is recorded explains the difference.
    cause = None if differences else replayed(tools, job, again.row.first_divergence)
    return _compared(again, differences, after_step=step_before(project.runs_dir / run, job.contract), cause=cause)


def _from_record(tools: Tools, phase: str, result: Run, steps: int | None) -> Reproduced:
    """Return the outcome of training again from the committed record, in a clone that has none of the run's files.

    Raises:
        InputError: Only a part is asked for: a record holds the chain's head, with which the end alone can be compared.
    """
    project, run = tools.project, result.id
    if steps is not None:
        message = f"the chain of run {run} is missing: only its end can be compared, not its first {steps} steps"
        raise InputError(message, where="--steps", hint=f"mltrainer reproduce {phase}")
    known = known_differences(project, result)
    missing = [row.what for row in known if row.kind != "environment" and row.found == "missing"]
    if missing:
        message = f"run {run} cannot be trained from its record without {', '.join(missing[:5])}"
        raise InputError(message, hint="restore the files, then type the same command again")
    try:
        again = reproduce_recorded(tools, phase, result, elsewhere=_is_elsewhere(known))
    except (InputError, GateError) as error:
        if not known:
            raise
        return _untrained(run, known, error, record=phase, delivered=None)
    differences = [*known, *_measured(result, again.result, known)]
    return _compared(again, differences, record=phase, delivered=again.delivered)


def _is_elsewhere(differences: Iterable[Difference]) -> bool:
    """Return True if the environment differs."""
    return any(row.kind == "environment" for row in differences)


def _compared(again: Reproduction, differences: list[Difference], **more: Any) -> Reproduced:
    of_row = {name: getattr(again.row, name) for name in Reproduced.model_fields if hasattr(again.row, name)}
    more = {"differences": differences, "after_step": 0, "error": None, "cause": None, **more}
    return Reproduced(**of_row | more, is_without_steps=again.result.is_without_steps)


def _untrained(run: str, differences: list[Difference], error: MltrainerError, **of_record: Any) -> Reproduced:
    nothing: dict[str, Any] = dict.fromkeys(("loss_difference", "metric_difference", "first_divergence", "cause"))
    nothing |= {"identical": False, "grade": grades.NOT, "reachable": grades.NUMERICAL, "steps_compared": 0, "after_step": 0}
    return Reproduced(run=run, differences=differences, error=str(error), **nothing, **of_record)


def replayed(tools: Tools, job: TrainingJob, divergence: Divergence | None) -> str | None:
    """Return the cause, in words, of a difference that no record explains: the step is trained twice more, and traced.

    Args:
        tools: The project's tools.
        job: The original's.
        divergence: The first difference of the reproduction; None if there is none.
    """
    if divergence is None:
        return None
    if "trace" not in trainer_of(tools, job).capabilities:
        return UNDETERMINED
    begun = step_before(tools.project.root / job.folder, job.contract)
    again = job.model_copy(update={"start_of": job.folder, "max_steps": max(begun + 1, divergence.step)})
    cause = find_cause(tools, again, [NOTHING], divergence.step)
    return sentence(cause) if cause else UNDETERMINED


def reproduce_elsewhere(project: Project, run: str, tell: Any, steps: int | None, *, as_json: bool) -> int:
    """Rebuild the environment that planning recorded for a run, reproduce the run there, and return the exit code.

    Raises:
        InputError: The environment cannot be rebuilt.
        GateError: The present plan is not the run's.
    """
    recorded = recorded_run(project, run)
    result = recorded[1] if recorded is not None else original_run(project, run)[0]
    environment = _planned_environment(project)
    # A run has the digest of its environment alone: the list to install from is the plan's, which must be the run's.
    if environment is None or environment_digest(environment) != result.environment_sha256:
        raise GateError(
            f"today's planning record is not of the environment of run {run}",
            hint="check out the commit that holds the run's record, then type the same command again",
        )
    python = rebuild(project, environment, tell)
    command = [str(python), "-P", "-m", "mltrainer", "reproduce", run, "--project", str(project.root)]
    more = [*(["--steps", str(steps)] if steps else []), *(["--json"] if as_json else [])]
    return run_command(Command(arguments=[*command, *more], folder=Path(), environment=os.environ, output=1, errors=2)) or 0


def _other_seeds(project: Project, run: str) -> list[float]:
    """Return the metrics of a run's config under the fresh seeds that optimization trained; empty if it trained none."""
    record = sound_record(project, "optimization")
    if record is None or not isinstance(record.evidence, Searched):
        return []
    sides = ((record.evidence.baseline, "baseline"), (record.evidence.replay, "candidate"))
    side = next((name for part, name in sides if part.run == run), None)
    return [float(value) for value in getattr(record.evidence.comparison, side)] if side else []


def refuse_edited(project: Project, run: str) -> None:
    """Refuse a run whose result differs from the one that a phase's record is bound to.

    Raises:
        GateError: The digests differ; the message has both.
    """
    path = project.runs_dir / run / RESULT_FILE
    name, found = project.relative(path), sha256_file(path)
    for phase in PHASES:
        record = sound_record(project, phase)
        for row in record.inputs if record else []:
            if row.path == name and row.sha256 != found:
                raise GateError(
                    f"it differs from the file that the record of {phase} is bound to",
                    expected=f"sha256 {row.sha256[:12]}",
                    found=found[:12],
                    where=name,
                    hint=f"restore the file, or: mltrainer phase run {phase}",
                )


# --- what differs ---------------------------------------------------------------------------------


def known_differences(project: Project, result: Run) -> list[Difference]:
    """Return the differences of this machine's environment, data, opened files and code from the run's."""
    kinds = (environment_differences, data_differences, input_differences, code_differences)
    return [row for differences in kinds for row in differences(project, result)]


def environment_differences(project: Project, result: Run) -> list[Difference]:
    """Return the differences of this machine's environment from the run's; one by one if planning's record is the run's."""
    environment = capture(result.threads)
    expected, actual = result.environment_sha256, environment_digest(environment)
    if expected == actual:
        return []
    planned = _planned_environment(project)
    if planned is not None and environment_digest(planned) == expected:
        return environment_changes(planned, environment, project.root, result.code_files)
    return [_row("environment", "all of it (the run was planned before the present plan)", expected[:12], actual[:12])]


def data_differences(project: Project, result: Run) -> list[Difference]:
    """Return the data files that have changed, if planning's record is the run's."""
    data: Data | None = _planning(project, "data")
    return _changed(project, data.files if data is not None and data.sha256 == result.data_sha256 else [], "data")


def input_differences(project: Project, result: Run) -> list[Difference]:
    """Return the other files that the run opened and that have changed, such as a teacher's weights.

    A missing file is no difference here: in a clone it may be elsewhere, and a training that misses it names it.
    """
    unsteady = _planning(project, "unsteady") or []
    rows = [row for row in result.opened or [] if row.path not in unsteady and not OTHERS_RECORD.search(row.path)]
    now = rows_of_paths([row.path for row in rows], project.root)
    pairs = zip(rows, now, strict=True)
    return [_row("data", r.path, r.sha256[:12], n.sha256[:12]) for r, n in pairs if n.sha256 and n.sha256 != r.sha256]


def code_differences(project: Project, result: Run) -> list[Difference]:
    """Return the files of code that differ from those that the run imported."""
    return _changed(project, result.code_files, "code")


def _planned_environment(project: Project) -> Environment | None:
    environment: Environment | None = _planning(project, "environment")
    return environment


def _planning(project: Project, part: str) -> Any:
    """Return a part of planning's evidence; None if planning has no sound record, or did not reach that part."""
    record = sound_record(project, PHASES[0])
    return getattr(record.evidence, part, None) if record is not None else None


def _changed(project: Project, rows: Iterable[FileRow], kind: str) -> list[Difference]:
    rows = list(rows)
    paths = {row.path: located(project.root, row.path) for row in rows}
    now = {name: _sha256(path) for name, path in paths.items()}
    return [_row(kind, r.path, r.sha256[:12], now[r.path][:12]) for r in rows if now[r.path] != r.sha256]


def _sha256(path: Path) -> str:
    if path.is_dir():
        return folder_sha256(path)
    return sha256_file(path) if path.is_file() else "missing"


def _measured(result: Run, again: Run, known: list[Difference]) -> list[Difference]:
    """Return the differences that only the training could reveal: other samples, more code, other libraries or arithmetic."""
    differences = []
    if again.data_sha256 != result.data_sha256 and not any(row.kind == "data" for row in known):
        differences.append(_row("data", "samples and splits", result.data_sha256[:12], again.data_sha256[:12]))
    before = {row.path for row in result.code_files}
    differences += [_row("code", r.path, "not imported", r.sha256[:12]) for r in again.code_files if r.path not in before]
    before_libraries, libraries = result.libraries, again.libraries
    changed = [name for name in libraries if before_libraries.get(name) != libraries[name]]
    differences += [_row("environment", name, str(before_libraries.get(name)), libraries[name]) for name in changed]
    if computes_otherwise(result, again):
        differences.append(_row("environment", "numerics", result.numerics_class, again.numerics_class))
    return differences


def _row(kind: str, what: str, expected: str, found: str) -> Difference:
    return Difference(kind=kind, what=what, expected=expected, found=found)
