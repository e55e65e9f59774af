"""Writing of a stack's files into a project."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from mltrainer.companions.serving.admission import admitted
from mltrainer.companions.serving.templates import Kind
from mltrainer.companions.serving.templates.rendering import Place, files_of
from mltrainer.errors import InputError
from mltrainer.generated_files import folder_within, write_generated
from mltrainer.records.reading import sound_record
from mltrainer.reproducibility.pins import requirements_file
from mltrainer.workspace import Project

_MIGRATION = re.compile(r"\d{14}(_.+\.sql)")


def integrate(
    project: Project, kind: Kind, folder: str | None = None, force: bool = False, allow_unchecked: bool = False
) -> list[str]:
    """Write the files of a stack for a project's delivered model, and return their paths within the project.

    Args:
        project: The project.
        kind: The stack.
        folder: Path of the files within the project; None: `integrations/KIND`.
        force: Overwrite files that a person made or changed.
        allow_unchecked: Accept a model whose files or gates fail their checks; each file then notes it.

    Raises:
        GateError: A file of the model differs from the delivered one, or a gate fails.
        InputError: There is no delivered model, the folder is outside the project, or a person changed files there.
    """
    model = admitted(project.root, allow_unchecked)
    target = folder_within(project, folder or f"integrations/{kind}")
    place = _place(project, kind, project.relative(target))
    texts = files_of(kind, model.spec, model.identity, place)
    return write_generated(project, {_known(target / name): text for name, text in texts.items()}, force)


def _place(project: Project, kind: Kind, folder: str) -> Place:
    time = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    if kind != "docker":
        return Place(folder, time)
    record = sound_record(project, "planning")
    if record is None:
        what = "planning has no sound record, from which the packages and their versions are taken"
        raise InputError(what, where=project.relative(project.phase_dir("planning")), hint="mltrainer phase run planning")
    environment = record.evidence.environment
    return Place(folder, time, environment.python.version, requirements_file(environment))


def _known(path: Path) -> Path:
    """Return the path of an earlier migration for the same model, whose time differs; else the given path."""
    match = _MIGRATION.fullmatch(path.name)
    earlier = sorted(path.parent.glob(f"*{match[1]}")) if match else []
    return earlier[0] if earlier else path
