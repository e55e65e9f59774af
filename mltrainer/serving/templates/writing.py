"""Files put into a project: none that a person made or changed is overwritten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.records.reading import sound_record
from mltrainer.redaction import redact
from mltrainer.reproducibility.pins import normal, requirements_file
from mltrainer.serving.admission import admitted
from mltrainer.serving.templates import Kind
from mltrainer.serving.templates.rendering import UNSEALED, Place, files_of
from mltrainer.workspace import Project, read_whole, sha256_bytes, write_text

_SEAL = re.compile(rb"written_sha256: ([0-9a-f]{64})")
_MIGRATION = re.compile(r"\d{14}(_.+\.sql)")
_FOLDER = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?")
MAX_BYTES = 8 << 20


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
    target = _inside(project, folder or f"integrations/{kind}")
    place = _place(project, kind, project.relative(target))
    sealed = {target / name: seal(redact(text)) for name, text in files_of(kind, found.spec, found.identity, place).items()}
    files = {_known(path): text for path, text in sealed.items()}
    _refuse_changed(project, files, force)
    for path, text in files.items():
        write_text(path, text)
    return [project.relative(path) for path in files]


def seal(text: str) -> str:
    """Return a file's text with its digest in place of the zeros in its head; the digest is that of the text with the zeros."""
    return text.replace(f"written_sha256: {UNSEALED}", f"written_sha256: {sha256_bytes(text.encode())}", 1)


def is_as_written(data: bytes) -> bool:
    """Return True for a file that is as it was written: the digest in its head is its own."""
    match = _SEAL.search(data)
    if match is None:
        return False
    low, high = match.span(1)
    return sha256_bytes(data[:low] + UNSEALED.encode() + data[high:]) == match[1].decode()


def _inside(project: Project, folder: str) -> Path:
    if not _FOLDER.fullmatch(folder):
        what = "expected letters, digits and . _ - in the folder's name, as it stands in the files themselves"
        raise InputError(what, where=f"--to {folder}", mend="--to integrations/mine")
    root = project.root.resolve()
    target = project.root / folder
    if not target.resolve().is_relative_to(root) or target.resolve() == root:
        raise InputError("expected a folder within the project", where=f"--to {folder}", mend="--to integrations/mine")
    return target


def _place(project: Project, kind: Kind, folder: str) -> Place:
    time = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    if kind != "docker":
        return Place(folder, time)
    record = sound_record(project, "planning")
    if record is None:
        what = "there is no sound record of planning, which has the packages and their versions"
        raise InputError(what, where=project.relative(project.phase_dir("planning")), mend="mltrainer phase run planning")
    environment = record.evidence.environment
    # The package index has another project's package under the name mltrainer.
    others = [row for row in environment.distributions if normal(row.name) != "mltrainer"]
    pins = requirements_file(environment.model_copy(update={"distributions": others}))
    return Place(folder, time, environment.python.version, pins)


def _known(path: Path) -> Path:
    """Return the path of an earlier migration for the same model, whose time was another; else the given one."""
    match = _MIGRATION.fullmatch(path.name)
    earlier = sorted(path.parent.glob(f"*{match[1]}")) if match else []
    return earlier[0] if earlier else path


def _refuse_changed(project: Project, files: Mapping[Path, str], force: bool) -> None:
    """Refuse to write where a file is a person's, before any is written.

    Raises:
        InputError: With the files.
    """
    strange = [path for path in files if path.is_symlink() or (path.exists() and not path.is_file())]
    if strange:
        raise InputError(
            "is a link or a folder, where a file would be written", where=project.relative(strange[0]), mend="move it"
        )
    own = [path for path in files if path.is_file() and not is_as_written(read_whole(path, MAX_BYTES))]
    if own and not force:
        named = ", ".join(project.relative(path) for path in own)
        raise InputError("made or changed by a person, and not overwritten", where=named, mend="move them, or overwrite: --force")
