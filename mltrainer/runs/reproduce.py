"""`mltrainer reproduce`: a recorded run trained again, and what differs where its bits do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mltrainer.errors import GateError, InputError, MltrainerError
from mltrainer.executors.executor import Command
from mltrainer.executors.running import run as run_command
from mltrainer.plugins import located
from mltrainer.records.common import FileRow
from mltrainer.records.job import TrainingJob
from mltrainer.records.optimization import Searched
from mltrainer.records.planning import Data, Environment
from mltrainer.records.reading import sound_record
from mltrainer.records.run import Run
from mltrainer.reproducibility import grades
from mltrainer.reproducibility.causes import sentence
from mltrainer.reproducibility.environment import capture, environment_digest
from mltrainer.runs.contract import RESULT_FILE, environment_changes
from mltrainer.runs.launcher import Tools
from mltrainer.runs.localize import NOTHING, find_cause
from mltrainer.runs.rebuild import rebuild
from mltrainer.runs.recorded import recorded_run, reproduce_recorded
from mltrainer.runs.retrain import computes_otherwise, original_run, reproduce, step_before
from mltrainer.runs.trainer import trainer_of
from mltrainer.workspace import PHASES, Project, folder_sha256, sha256_file

Row = dict[str, Any]


def reproduce_run(tools: Tools, run: str, steps: int | None) -> Row:
    """Train a run again and return what `reproduce --json` prints.

    It trains whatever differs from when the run was made, because only the bits show what a difference does; where the
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
    _refuse_edited(project, run)
    known = [*environment_differences(project, result), *data_differences(project, result), *code_differences(project, result)]
    try:
        elsewhere = any(row["kind"] == "environment" for row in known)
        again = reproduce(tools, run, steps, to_the_end=elsewhere, seeds=_other_seeds(project, run))
    except (InputError, GateError) as error:
        if not known:
            raise
        return _answer(run, None, known, error)
    differences = [*known, *_measured(result, again.result, known)]
    cause = None if differences else replayed(tools, job, again.row["first_divergence"])
    begun = step_before(project.runs_dir / run)
    return {**_answer(run, again.row, differences, None), "after_step": begun, "cause": cause}


def _from_record(tools: Tools, phase: str, result: Run, steps: int | None) -> Row:
    """Return the outcome of training again from the committed record, in a clone that has none of the run's files.

    Raises:
        InputError: Only a part is asked for: a record holds the chain's head, with which the end alone can be compared.
    """
    project, run = tools.project, result.id
    if steps is not None:
        told = f"the chain of run {run} is not here, so that its first {steps} steps cannot be compared, only its end"
        raise InputError(told, where="--steps", mend=f"mltrainer reproduce {phase}")
    known = [*environment_differences(project, result), *data_differences(project, result), *code_differences(project, result)]
    missing = [row for row in known if row["kind"] != "environment" and row["found"] == "missing"]
    if missing:
        told = ", ".join(row["what"] for row in missing[:5])
        raise InputError(f"run {run} cannot be trained from its record without {told}", mend="bring it there, and type it again")
    try:
        elsewhere = any(row["kind"] == "environment" for row in known)
        again = reproduce_recorded(tools, phase, result, elsewhere=elsewhere)
    except (InputError, GateError) as error:
        if not known:
            raise
        return {**_answer(run, None, known, error), "record": phase, "delivered": None}
    differences = [*known, *_measured(result, again.result, known)]
    return {**_answer(run, again.row, differences, None), "record": phase, "delivered": again.row["delivered"]}


def replayed(tools: Tools, job: TrainingJob, divergence: Row | None) -> str | None:
    """Return the cause, in words, of a difference that no record explains: the step is trained twice more, and traced.

    Args:
        tools: The project's tools.
        job: The original's.
        divergence: Where the reproduction differed from it; None where it did not.
    """
    if divergence is None:
        return None
    if "trace" not in trainer_of(tools, job).capabilities:
        return UNDETERMINED
    begun = step_before(tools.project.root / job.folder)
    again = job.model_copy(update={"start_of": job.folder, "max_steps": max(begun + 1, divergence["step"])})
    found = find_cause(tools, again, [NOTHING], divergence["step"])
    return sentence(found) if found else UNDETERMINED


def reproduce_elsewhere(project: Project, run: str, tell: Any, steps: int | None, *, as_json: bool) -> int:
    """Rebuild the environment that planning recorded for a run, reproduce the run there, and return the exit code.

    Raises:
        InputError: The environment cannot be rebuilt.
        GateError: The present plan is not the run's.
    """
    recorded = recorded_run(project, run)
    result = recorded[1] if recorded is not None else original_run(project, run)[0]
    environment = _planned_environment(project)
    if environment is None or environment_digest(environment) != result.environment_sha256:
        raise GateError(
            f"the present plan does not hold the environment of run {run}",
            mend="check out the commit that holds the run's record, then type the same command again",
        )
    python = rebuild(project, environment, tell)
    command = [str(python), "-P", "-m", "mltrainer", "reproduce", run, "--project", str(project.root)]
    more = [*(["--steps", str(steps)] if steps else []), *(["--json"] if as_json else [])]
    return run_command(Command(arguments=[*command, *more], folder=Path(), environment=os.environ, output=1, errors=2)) or 0


def holds(found: Row) -> bool:
    """Return True if a reproduction holds: the same bits, those delivered among them, in the same environment."""
    same = bool(found["identical"]) and found.get("delivered") is not False
    return same and not any(row["kind"] == "environment" for row in found["differences"])


UNDETERMINED = (
    "undetermined: two further processes agree with each other, so that the original was made with something that is not "
    "recorded, or the difference is rare"
)
_UNTRAINED: Row = {
    "identical": False,
    "grade": grades.NOT,
    "reachable": grades.NUMERICAL,
    "loss_difference": None,
    "metric_difference": None,
    "steps_compared": 0,
    "first_divergence": None,
}


def _other_seeds(project: Project, run: str) -> list[float]:
    """Return the metric of a run's config under the fresh seeds that optimization trained it on; none where it did not."""
    record = sound_record(project, "optimization")
    if record is None or not isinstance(record.evidence, Searched):
        return []
    sides = ((record.evidence.baseline, "baseline"), (record.evidence.replay, "candidate"))
    side = next((name for part, name in sides if part.run == run), None)
    return [float(value) for value in getattr(record.evidence.comparison, side)] if side else []


def _answer(run: str, row: Row | None, differences: list[Row], error: MltrainerError | None) -> Row:
    return {
        "run": run,
        **{key: (row or _UNTRAINED)[key] for key in _UNTRAINED},
        "after_step": 0,
        "differences": differences,
        "error": str(error) if error else None,
        "cause": None,
    }


def _refuse_edited(project: Project, run: str) -> None:
    """Refuse a run whose result is not the one that a phase's record is bound to.

    Raises:
        GateError: With both digests.
    """
    path = project.runs_dir / run / RESULT_FILE
    name, found = project.relative(path), sha256_file(path)
    for phase in PHASES:
        record = sound_record(project, phase)
        for row in record.inputs if record else []:
            if row.path == name and row.sha256 != found:
                raise GateError(
                    f"it is not the file that the record of {phase} is bound to: {row.sha256[:12]} -> {found[:12]}",
                    where=name,
                    mend=f"bring the file back, or mltrainer phase run {phase}",
                )


# --- what differs ---------------------------------------------------------------------------------


def environment_differences(project: Project, result: Run) -> list[Row]:
    """Return the differences of this machine's environment from the run's; one by one where planning's record is the run's."""
    found = capture(result.threads)
    expected, actual = result.environment_sha256, environment_digest(found)
    if expected == actual:
        return []
    planned = _planned_environment(project)
    if planned is not None and environment_digest(planned) == expected:
        return [
            dict(row)
            for row in environment_changes(planned, found, project.root, [row.model_dump() for row in result.code_files])
        ]
    return [_row("environment", "all of it (the run was planned before the present plan)", expected[:12], actual[:12])]


def data_differences(project: Project, result: Run) -> list[Row]:
    """Return the data files that are not what they were, where planning's record is the run's."""
    data: Data | None = _planning(project, "data")
    return _changed(project, data.files if data is not None and data.sha256 == result.data_sha256 else [], "data")


def code_differences(project: Project, result: Run) -> list[Row]:
    """Return the files of code that are not what the run imported."""
    return _changed(project, result.code_files, "code")


def _planned_environment(project: Project) -> Environment | None:
    found: Environment | None = _planning(project, "environment")
    return found


def _planning(project: Project, part: str) -> Any:
    """Return a part of what planning measured; None where planning has no sound record, or did not come to it."""
    record = sound_record(project, PHASES[0])
    return getattr(record.evidence, part, None) if record is not None else None


def _changed(project: Project, rows: Iterable[FileRow], kind: str) -> list[Row]:
    rows = list(rows)
    paths = {row.path: located(project.root, row.path) for row in rows}
    now = {name: _sha256(path) for name, path in paths.items()}
    return [_row(kind, r.path, r.sha256[:12], now[r.path][:12]) for r in rows if now[r.path] != r.sha256]


def _sha256(path: Path) -> str:
    if path.is_dir():
        return folder_sha256(path)
    return sha256_file(path) if path.is_file() else "missing"


def _measured(result: Run, again: Run, known: list[Row]) -> list[Row]:
    """Return the differences that only the training could reveal: other samples, more code, other libraries or arithmetic."""
    found = []
    if again.data_sha256 != result.data_sha256 and not any(row["kind"] == "data" for row in known):
        found.append(_row("data", "samples and splits", result.data_sha256[:12], again.data_sha256[:12]))
    before = {row.path for row in result.code_files}
    found += [_row("code", r.path, "not imported", r.sha256[:12]) for r in again.code_files if r.path not in before]
    before_libraries, libraries = result.libraries, again.libraries
    changed = [name for name in libraries if before_libraries.get(name) != libraries[name]]
    found += [_row("environment", name, str(before_libraries.get(name)), libraries[name]) for name in changed]
    if computes_otherwise(result, again):
        found.append(_row("environment", "numerics", result.numerics_class, again.numerics_class))
    return found


def _row(kind: str, what: str, expected: str, found: str) -> Row:
    return {"kind": kind, "what": what, "expected": expected, "found": found}
