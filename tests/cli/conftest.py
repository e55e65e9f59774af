"""Situations that the tests of the command line share."""

from __future__ import annotations

import hashlib
from pathlib import Path


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of every file that a person sees, to tell whether anything was lost or left half-written."""
    hidden = {".mltrainer", ".git", "__pycache__"}
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and not hidden & set(p.relative_to(folder).parts))
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def leftovers(folder: Path) -> list[str]:
    """Return the files that a write which did not end left behind."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".tmp-*")]
