"""Runs as people ask for them: found by id, prefix or phase, shown, compared, reproduced, diagnosed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mltrainer.configs.loading import flatten
from mltrainer.diagnostics.rules import diagnose, suggested_changes
from mltrainer.errors import InputError, MltrainerError
from mltrainer.phases.finalization import reproduction_row
from mltrainer.phases.runs import RESULT_FILE, check_environment, reproduce
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.environment import capture, difference
from mltrainer.workflow.records import read_record
from mltrainer.workspace import PHASES, Project, is_locked, read_json, sha256_file

DIGESTS = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "numerics_class", "weights_sha256")
_EMPTY_RESULT: dict[str, Any] = {
    "steps": 0,
    "epochs": 0,
    "metrics": {},
    "step_time_us": {"median": None, "p95": None},
    "wall_s": None,
    "interruptions": [],
    "numerics_class": None,
    "weights_sha256": None,
}


def find_run(project: Project, name: str | None) -> str:
    """Return the id of a run.

    Args:
        project: The project.
        name: A run's id, a unique prefix of one, a phase's name for its current run, or None for the newest phase's.

    Raises:
        InputError: There is no such run, or a prefix fits several.
    """
    if name is None or name in PHASES:
        return _phase_run(project, name)
    found = [folder.name for folder in _folders(project) if folder.name.startswith(name)]
    if len(found) == 1 or name in found:
        return name if name in found else found[0]
    if found:
        raise InputError(f"{name!r} fits {len(found)} runs: {', '.join(found[:5])}", mend="type more of the id")
    raise InputError(f"there is no run {name!r}", mend="mltrainer runs list")


def _phase_run(project: Project, phase: str | None) -> str:
    for candidate in [phase] if phase else reversed(PHASES):
        record = read_record(project, candidate)
        run = record.evidence.get("run") if record else None
        if isinstance(run, dict):
            return str(run["id"])
    raise InputError(f"{phase or 'the project'} has no run yet", mend="mltrainer run")


def _folders(project: Project) -> list[Path]:
    folders = project.runs_dir.iterdir() if project.runs_dir.is_dir() else []
    return sorted((f for f in folders if (f / "job.json").is_file()), key=lambda f: (f / "job.json").stat().st_mtime)


def list_runs(project: Project) -> list[dict[str, Any]]:
    """Return every run, oldest first."""
    return [describe_run(project, folder.name) for folder in _folders(project)]


def describe_run(project: Project, run: str) -> dict[str, Any]:
    """Return a run as `runs show --json` prints it; from the committed records where the run's folder is not here."""
    folder = project.runs_dir / run
    result = _result(project, run)
    if result is None:
        job = read_json(folder / "job.json")
        state = "running" if is_locked(folder / "lock") else "interrupted"
        result = {
            **_EMPTY_RESULT,
            "id": run,
            "phase": job["phase"],
            "state": state,
            "parent": job.get("parent"),
            **job["contract"],
        }
    elif is_locked(folder / "lock"):
        result = {**result, "state": "running"}
    keys = ("id", "phase", "state", *DIGESTS, "steps", "epochs", "metrics", "step_time_us", "wall_s", "interruptions", "parent")
    return {key: result.get(key) for key in keys}


def _result(project: Project, run: str) -> dict[str, Any] | None:
    try:
        return dict(read_json(project.runs_dir / run / RESULT_FILE))
    except InputError:
        pass
    for phase in PHASES:
        record = read_record(project, phase)
        recorded = record.evidence.get("run") if record else None
        if isinstance(recorded, dict) and recorded.get("id") == run:
            return recorded
    return None


def compare_runs(project: Project, first: str, second: str) -> dict[str, Any]:
    """Return how two runs differ: config keys, digests, metrics, and the first step at which they part."""
    sides = [_side(project, run) for run in (first, second)]
    names = list(dict.fromkeys([*sides[0], *sides[1]]))
    differences = [
        {"what": n, "first": sides[0].get(n), "second": sides[1].get(n)} for n in names if sides[0].get(n) != sides[1].get(n)
    ]
    chains = [fingerprint.read(project.runs_dir / run / fingerprint.CHAIN_FILE) for run in (first, second)]
    return {
        "first": first,
        "second": second,
        "differences": differences,
        "first_divergence": fingerprint.first_divergence(*chains),
    }


def _side(project: Project, run: str) -> dict[str, Any]:
    row = describe_run(project, run)
    config = read_json(project.runs_dir / run / "job.json")["config"]
    return {**flatten(config), **{key: row[key] for key in DIGESTS}, **row["metrics"]}


def reproduce_run(project: Project, run: str, tell: Any, steps: int | None) -> dict[str, Any]:
    """Train a run again and return what `reproduce --json` prints; differences in what decides the bits come first.

    Raises:
        MltrainerError: The run is not finished, or its own files are damaged.
    """
    known = differences(project, run)
    try:
        check_environment(_recorded_environment(project))
    except MltrainerError as error:
        if error.exit_code != 5:
            raise
        return {"run": run, "identical": False, "steps_compared": 0, "first_divergence": None, "differences": known}
    result = _result(project, run)
    if result is None:
        raise InputError(f"run {run} has no result", mend="finish it first: mltrainer run")
    return _compared(project, run, result, tell, steps, known)


def _compared(
    project: Project, run: str, result: dict[str, Any], tell: Any, steps: int | None, known: list[dict[str, Any]]
) -> dict[str, Any]:
    again = reproduce(project, run, tell, steps)
    row = reproduction_row(result, again)
    whole = again["stop_reason"] != "max_steps"
    identical = row["identical"] if whole else again["first_divergence"] is None
    return {
        "run": run,
        "identical": identical,
        "grade": "bitwise" if identical else "not reproduced",
        "steps_compared": row["steps_compared"],
        "first_divergence": row["first_divergence"],
        "differences": known,
    }


def _recorded_environment(project: Project) -> dict[str, Any]:
    record = read_record(project, "planning")
    if record is None or record.faults:
        raise InputError("planning has no sound record", mend="mltrainer phase run planning")
    return dict(record.evidence["environment"])


def differences(project: Project, run: str) -> list[dict[str, Any]]:
    """Return what is not what it was when the run was made, by kind: environment, data, code, config."""
    record = read_record(project, "planning")
    found: list[dict[str, Any]] = []
    if record is not None and not record.faults:
        environment = record.evidence["environment"]
        found += difference(environment, capture(environment["threads"]))
        found += [_changed(project, row, "data") for row in record.data["inputs"] if row["role"] == "data"]
    result = _result(project, run) or {}
    found += [_changed(project, row, "code") for row in result.get("code_files", [])]
    return [row for row in found if row["expected"] != row["found"]]


def _changed(project: Project, row: dict[str, Any], kind: str) -> dict[str, Any]:
    path = project.root / row["path"]
    found = sha256_file(path)[:12] if path.is_file() else "missing"
    return {"kind": kind, "what": row["path"], "expected": row["sha256"][:12], "found": found}


def diagnose_run(project: Project, run: str) -> list[dict[str, Any]]:
    """Return every diagnostic's row for a run, with concrete config changes for those that fired.

    Raises:
        InputError: The run has no result.
    """
    result = _result(project, run)
    if result is None:
        raise InputError(f"run {run} has no result yet", mend="mltrainer run")
    rows = diagnose(result, project.root)
    config = _config_of(project, run)
    return [{**row, "changes": suggested_changes([row], config)} for row in rows]


def _config_of(project: Project, run: str) -> dict[str, Any]:
    try:
        return dict(read_json(project.runs_dir / run / "job.json")["config"])
    except InputError:
        record = read_record(project, "planning")
        return dict(record.evidence["config"]) if record and not record.faults else {}
