"""The files of a stack, put into a project."""

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
        kind: Of stack.
        folder: Within the project; None: `integrations/KIND`.
        force: Overwrite files that a person made or changed.
        allow_unchecked: Take a model whose files or gates do not hold; each file then says so.

    Raises:
        GateError: A file of the model is not the one that was delivered, or a gate does not hold.
        InputError: There is no delivered model, the folder is none of the project, or files there are a person's.
    """
    found = admitted(project.root, allow_unchecked)
    target = folder_within(project, folder or f"integrations/{kind}")
    place = _place(project, kind, project.relative(target))
    texts = files_of(kind, found.spec, found.identity, place)
    return write_generated(project, {_known(target / name): text for name, text in texts.items()}, force)


def _place(project: Project, kind: Kind, folder: str) -> Place:
    time = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    if kind != "docker":
        return Place(folder, time)
    record = sound_record(project, "planning")
    if record is None:
        what = "there is no sound record of planning, which has the packages and their versions"
        raise InputError(what, where=project.relative(project.phase_dir("planning")), hint="mltrainer phase run planning")
    environment = record.evidence.environment
    return Place(folder, time, environment.python.version, requirements_file(environment))


def _known(path: Path) -> Path:
    """Return the path of an earlier migration for the same model, whose time was another; else the given one."""
    match = _MIGRATION.fullmatch(path.name)
    earlier = sorted(path.parent.glob(f"*{match[1]}")) if match else []
    return earlier[0] if earlier else path
