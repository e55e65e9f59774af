"""Generated files in a project: none is outside it, and none that a person made or changed is overwritten."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.redaction import redact
from mltrainer.workspace import STATE_DIR, Project, read_whole, sha256_bytes, write_text

UNKNOWN = "0" * 64  # the placeholder of a file's own digest
DIGEST = f"written_sha256: {UNKNOWN}"  # a part of a file's head
KEPT = ("phases", STATE_DIR, ".git")  # folders of a project into which no generated file goes
MAX_BYTES = 8 << 20
_DIGEST = re.compile(rb"written_sha256: ([0-9a-f]{64})")
_FOLDER = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?")


def folder_within(project: Project, folder: str) -> Path:
    """Return the path of a project's folder.

    Raises:
        InputError: The folder leads out of the project, is one that mltrainer or git keeps, or its name has other characters than
            letters, digits and . _ -
    """
    hint = "--to integrations/mine"
    if not _FOLDER.fullmatch(folder):
        what = "expected letters, digits and . _ - in the folder's name, as it is written in the files themselves"
        raise InputError(what, where=f"--to {folder}", hint=hint)
    root = project.root.resolve()
    target = project.root / folder
    if not target.resolve().is_relative_to(root) or target.resolve() == root:
        raise InputError("expected a folder within the project", where=f"--to {folder}", hint=hint)
    if (kept := target.resolve().relative_to(root).parts[0]) in KEPT:
        what = f"expected a folder outside of {kept}, whose files gates and git account for"
        raise InputError(what, where=f"--to {folder}", hint=hint)
    return target


def write_generated(project: Project, texts: Mapping[Path, str], force: bool) -> list[str]:
    """Write texts, with their digest where their head has a placeholder for it, and return their paths within the project.

    Args:
        project: The project.
        texts: The texts, by path.
        force: Whether files that a person made or changed are overwritten.

    Raises:
        InputError: A file is a person's, a link or a folder; nothing is written then.
    """
    files = {path: with_digest(redact(text)) for path, text in texts.items()}
    _refuse_changed(project, files, force)
    for path, text in files.items():
        write_text(path, text)
    return [project.relative(path) for path in files]


def with_digest(text: str) -> str:
    """Return a file's text with its digest in place of the zeros in its head; the digest is of the text with the zeros."""
    return text.replace(DIGEST, DIGEST.replace(UNKNOWN, sha256_bytes(text.encode())), 1)


def is_as_written(data: bytes) -> bool:
    """Return True for a file that is unchanged since it was written: the digest in its head matches."""
    match = _DIGEST.search(data)
    if match is None:
        return False
    low, high = match.span(1)
    return sha256_bytes(data[:low] + UNKNOWN.encode() + data[high:]) == match[1].decode()


def _refuse_changed(project: Project, files: Mapping[Path, str], force: bool) -> None:
    strange = [path for path in files if path.is_symlink() or (path.exists() and not path.is_file())]
    if strange:
        raise InputError(
            "is a link or a folder, where a file would be written", where=project.relative(strange[0]), hint="move it"
        )
    own = [path for path, text in files.items() if path.is_file() and _is_own(read_whole(path, MAX_BYTES), text)]
    if own and not force:
        named = ", ".join(project.relative(path) for path in own)
        raise InputError("made or changed by a person, and not overwritten", where=named, hint="move them, or overwrite: --force")


def _is_own(data: bytes, text: str) -> bool:
    """Return True for a person's file: changed since it was written, and other than the text that would be written now."""
    return not is_as_written(data) and data != text.encode()
