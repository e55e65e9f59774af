"""Every checkpoint of a project: where it came from, who refers to it, and whether it is still what was written.

Read from manifests, run results and phase records; needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.manifest import START_FOLDER, faults, file_fault, folders, read_manifest, step_of
from mltrainer.checkpointing.tensors import WEIGHTS_FILE, file_weights_sha256
from mltrainer.errors import GateError, InputError
from mltrainer.workspace import MODEL_FOLDER, PHASES, Project, read_json, sha256_file

Row = dict[str, Any]
DIGESTS = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "numerics_class")

_RUN = re.compile(r"^[0-9a-f]{12}$")  # runs that were set aside carry a suffix, and are left alone


def checkpoints(project: Project, run: str | None = None) -> list[Row]:
    """Return a row for each checkpoint of a run, or of all runs, by run and step.

    Returns:
        run, step, epoch, roles, metrics, size (bytes), path (relative), the digests of config, data, code and environment and
        the numerics class of its contract, parent (the run it follows, or None), phases (whose record refers to it),
        and fault: None, or why its manifest cannot be read, and then what the manifest would say is None.
    """
    rows = []
    references = _references(project)
    for folder in _run_folders(project, run):
        recorded = _recorded(folder)
        parent = recorded.get("parent")
        roles = {row["step"]: row["roles"] for row in recorded.get("checkpoints", [])}
        for checkpoint in folders(folder / "checkpoints"):
            row = _row(project, folder.name, checkpoint)
            row["phases"] = [phase for phase in PHASES if row["path"] in references.get(phase, ())]
            rows.append({**row, "parent": parent, "roles": roles.get(row["step"], [])})
    return rows


def verify(project: Project, run: str | None = None) -> list[Row]:
    """Hash every file of every checkpoint again, and compare with the manifests and with what the runs' results recorded.

    The delivered model is compared with finalization's record, its weights with those that were measured.

    Returns:
        For each checkpoint path, ok and reason: None, or each file that differs, with the expected and the found
        digest. A checkpoint that a result names and that is gone is a row too.

    Raises:
        InputError: There is no such run.
    """
    rows = []
    for folder in _run_folders(project, run):
        listed = {row["path"]: row for row in _recorded(folder).get("checkpoints", [])}
        present = {project.relative(path): path for path in folders(folder / "checkpoints")}
        for path in sorted(set(listed) | set(present)):
            reasons = _reasons(project, folder.name, present.get(path), listed.get(path))
            rows.append({"path": path, "ok": not reasons, "reason": "; ".join(reasons) or None})
    return [*rows, *_delivered(project, run)]


def _delivered(project: Project, run: str | None) -> list[Row]:
    """Return the row of the delivered model, where its weights are here: its files and weights are those that were measured."""
    record = _json(project.phase_dir("finalization") / "record.json")
    evidence = record.get("evidence") if isinstance(record, dict) else None
    folder = project.phase_dir("finalization") / MODEL_FOLDER
    if not isinstance(evidence, dict) or not (folder / WEIGHTS_FILE).is_file():
        return []
    try:
        if run not in (None, evidence["run"]["id"]):
            return []
        reasons = [f for row in evidence["model_files"] if (f := _file_fault(project.root / row["path"], row["sha256"]))]
        reasons += _weights_fault(folder / WEIGHTS_FILE, evidence["delivered_sha256"])
    except (KeyError, TypeError):
        return []  # a damaged record is the gate's to report
    return [{"path": project.relative(folder), "ok": not reasons, "reason": "; ".join(reasons) or None}]


def _file_fault(path: Path, expected: str) -> str | None:
    found = sha256_file(path) if path.is_file() else "none"
    return None if found == expected else f"{path.name}: expected sha256 {expected[:12]}, found {found[:12]}"


def _weights_fault(path: Path, expected: str) -> list[str]:
    try:
        found = file_weights_sha256(path)
    except InputError as error:
        return [f"{path.name}: {error.message}"]
    return [] if found == expected else [f"{path.name}: expected weights of sha256 {expected[:12]}, found {found[:12]}"]


def _reasons(project: Project, run: str, folder: Path | None, listed: Row | None) -> list[str]:
    """Return one checkpoint's faults; `listed` is its row in the run's result."""
    if folder is None:
        return [f"the result of run {run} names it, but it is not here"]
    found = faults(folder)
    if not found and (other := read_manifest(folder).get("run")) not in (None, run):
        found.append(f"it belongs to run {other}, not to {run}")
    for row in listed["files"] if listed else []:
        path = project.root / row["path"]
        if path.parent == folder and (fault := file_fault(path, row)) and not any(f.startswith(f"{path.name}:") for f in found):
            found.append(f"{path.name}: the run's result {fault}")
    return found


def _row(project: Project, run: str, folder: Path) -> Row:
    path = project.relative(folder)
    step = int(folder.name.removeprefix("step-"))
    try:
        manifest = read_manifest(folder)
    except GateError as error:
        names = ("epoch", "metrics", "size", *DIGESTS)
        return {"run": run, "step": step, "path": path, **dict.fromkeys(names), "fault": error.message}
    contract = manifest.get("contract") or {}
    return {
        "run": run,
        "step": step,
        "path": path,
        "epoch": manifest.get("epoch"),
        "metrics": manifest.get("metrics"),
        "size": sum(row["size"] for row in manifest["files"]),
        **{name: contract.get(name) for name in DIGESTS},
        "fault": None,
    }


def _run_folders(project: Project, run: str | None) -> list[Path]:
    if run is None:
        return sorted(path for path in project.runs_dir.glob("*") if _RUN.match(path.name) and path.is_dir())
    folder = project.runs_dir / run
    if not _RUN.match(run) or not folder.is_dir():
        raise InputError(f"no run {run!r}", mend="list them with `mltrainer runs list`")
    return [folder]


def _recorded(folder: Path) -> Row:
    """Return a run's result, or its job where it has not ended; empty where neither can be read."""
    for name in ("result.json", "job.json"):
        values = _json(folder / name)
        if isinstance(values, dict):
            return values
    return {}


def _json(path: Path) -> Any:
    try:
        return read_json(path)
    except (OSError, InputError):
        return None  # a damaged record is the gate's to report


def _references(project: Project) -> dict[str, set[str]]:
    """Return, for each phase with a record, the folders of the files that the record binds."""
    found = {}
    for phase in PHASES:
        record = _json(project.phase_dir(phase) / "record.json")
        rows = record.get("inputs") if isinstance(record, dict) else None
        found[phase] = set(_parents(rows if isinstance(rows, list) else []))
    return found


def _parents(rows: Iterable[Any]) -> Iterable[str]:
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("path"), str):
            yield row["path"].rpartition("/")[0]


def protected_steps(project: Project, run: str) -> set[int]:
    """Return the steps of a run's checkpoints that are never deleted: a phase's record, a fork or an export names them."""
    paths = set().union(*_references(project).values(), _exported(project))
    found = folders(project.runs_dir / run / "checkpoints")
    named = {path for path in found if project.relative(path) in paths}
    return {step for path in named if (step := step_of(path)) is not None} | _forked(project, run)


def _exported(project: Project) -> set[str]:
    """Return the checkpoints that were exported, each run's last one."""
    jobs = (_json(path) for path in project.state_dir.glob("exports/*/job.json"))
    return {str(job["checkpoint"]) for job in jobs if isinstance(job, dict) and "checkpoint" in job}


def _forked(project: Project, run: str) -> set[int]:
    """Return the steps of a run at which other runs begin."""
    starts = [path for folder in project.runs_dir.glob(f"*/{START_FOLDER}") for path in folders(folder)]
    return {int(manifest["step"]) for manifest in map(_manifest, starts) if manifest.get("run") == run}


def _manifest(folder: Path) -> Row:
    try:
        return read_manifest(folder)
    except GateError:
        return {}
