"""The files of a finished project that make a version: the delivered model, and what its gates are computed from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mltrainer.companions.registry.changes import Added, Model, is_inside
from mltrainer.errors import GateError, InputError
from mltrainer.gates.gate import AWAY_ROLES
from mltrainer.project.stored_files import Listed
from mltrainer.records.common import Part
from mltrainer.records.envelope import Envelope
from mltrainer.records.faults import fault_lines
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import RECORD_FILE, read_record, sound_records
from mltrainer.workspace import MODEL_FOLDER, PROJECT_FILE, Project, phase_folder, read_json, sha256_file, write_json

FINAL = "finalization"
MODEL_PREFIX = f"{phase_folder(FINAL)}/{MODEL_FOLDER}/"
REGISTERED_FILE = "phases/registered.json"  # the versions that were made of a project, whose runs are therefore kept


class Registered(Part):
    """A version that was made of a project; `run` and `record` as in `Added`, `registry`: its place, as it was typed."""

    registry: str
    model: str
    version: int
    run: str
    record: str


class RegisteredFile(Part):
    """The content of `REGISTERED_FILE`."""

    versions: list[Registered]


def files_of(project: Project) -> dict[str, Listed]:
    """Return the files of a finished project that make a version.

    Raises:
        GateError: There is no sound record of finalization, or a file of the model is not the delivered one.
        InputError: A file that the gates read is outside of the project.
    """
    final_record(project)
    paths = sorted({path for path in _paths(project) if (project.root / path).is_file()})
    if outside := [path for path in paths if not is_inside(path)]:
        hint = "put it into the project, not hidden, and run the phase that reads it again"
        raise InputError("a file that the gates read is not in the project", where=outside[0], hint=hint)
    files = {path: _listed(project.root / path) for path in paths}
    require_delivered(final_record(project).evidence, {path: row.sha256 for path, row in files.items()})
    return files


def final_record(project: Project) -> Envelope[Finalization]:
    """Return finalization's record.

    Raises:
        GateError: There is none that can be trusted.
    """
    record = read_record(project, FINAL)
    if record is None:
        raise GateError(f"{FINAL} has not run: there is no delivered model", hint="mltrainer run")
    return record.trusted


def require_delivered(evidence: Finalization, digests: Mapping[str, str]) -> None:
    """Require that the files of a model are those that finalization delivered.

    Raises:
        GateError: One is missing or another.
    """
    for row in evidence.model_files:
        found = digests.get(row.path)
        if found != row.sha256:
            message = (
                f"expected sha256 {row.sha256[:12]}, as finalization delivered it, found {found[:12] if found else 'no file'}"
            )
            raise GateError(message, where=row.path, hint="bring the delivered file back, or mltrainer phase run finalization")


def _paths(project: Project) -> Iterator[str]:
    """Yield the files that a clone has and gates read: phases, configs, own pages and checks; no data, runs and checkpoints."""
    yield PROJECT_FILE
    for path in (project.root / "phases").rglob("*"):
        name = project.relative(path)
        is_hidden = any(part.startswith((".", "__")) for part in path.relative_to(project.root).parts)
        if not is_hidden and not path.is_symlink() and name != REGISTERED_FILE:
            yield name
    for record in sound_records(project):
        yield from (row.path for row in record.inputs if row.role not in AWAY_ROLES)
        yield from record.policy_overrides
        yield from (row.path for verdict in record.custom_checks or () for row in verdict.code)


def _listed(path: Path) -> Listed:
    stat = path.stat()
    return Listed(sha256=sha256_file(path), size=stat.st_size, modified=0)


def added(model: Model, project: Project, files: dict[str, Listed], note: str | None) -> Added:
    """Return the version that a project's files make, the next one of a model."""
    return Added(kind="add", version=len(model.versions) + 1, files=files, note=note, **facts(project, files))


def facts(project: Project, files: Mapping[str, Listed]) -> dict[str, Any]:
    """Return the facts of a version's project by the finalization record, under the names of `Added`."""
    record = final_record(project)
    evidence, run = record.evidence, record.evidence.run
    return {
        "project": record.project.name,
        "run": run.id,
        "contract": run.contract,
        "record": files[f"{phase_folder(FINAL)}/{RECORD_FILE}"].sha256,
        "commit": record.source.commit,
        "weights_sha256": evidence.delivered_sha256,
        "metric": run.metric.name,
        "metrics": evidence.validation,
        "tested": evidence.test.metrics if evidence.test.samples else {},
    }


def registered(project: Project) -> list[Registered]:
    """Return the versions that were made of a project.

    Raises:
        InputError: The file that notes them is damaged; to write it again would forget them, and with them the runs to keep.
    """
    path = project.root / REGISTERED_FILE
    try:
        return RegisteredFile.model_validate(read_json(path)).versions if path.exists() else []
    except ValidationError as error:
        hint = f"git checkout -- {REGISTERED_FILE}, or mend it: a merge keeps the rows of both sides"
        raise InputError(fault_lines(error)[0], where=REGISTERED_FILE, hint=hint) from error


def note_registered(project: Project, place: str, model: str, added: Added) -> None:
    """Note in a project that a version was made of it, so that `runs delete` and `checkpoints prune` keep the version's run."""
    own: dict[str, Any] = {"registry": place, "model": model}
    row = Registered(**own, version=added.version, run=added.run, record=added.record)
    rows = [*(one for one in registered(project) if one != row), row]
    write_json(project.root / REGISTERED_FILE, RegisteredFile(versions=rows).written())


def model_files(added: Added) -> dict[str, Listed]:
    """Return the files of the delivered model by their name in its folder.

    Raises:
        InputError: The version has none.
    """
    found = {path.removeprefix(MODEL_PREFIX): row for path, row in added.files.items() if path.startswith(MODEL_PREFIX)}
    if not found:
        raise InputError("the version holds no model", where=MODEL_PREFIX, hint="--records: write its other files")
    return found
