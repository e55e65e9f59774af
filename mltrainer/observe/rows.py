"""Files that were read, as records hold them: path, digest and size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer.observe.reads import Read
from mltrainer.workspace import sha256_file

OURS = str(Path(mltrainer.__file__).parent)  # a part of the environment, which is recorded whole
# Of the machine, not of the training
SYSTEM = tuple(f"/{name}/" for name in ("etc", "usr", "lib", "lib32", "lib64", "bin", "sbin", "run", "var/cache", "var/lib"))


def rows_of_reads(found: Iterable[Read], root: Path, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the rows of what was read by path; files of the machine, of Python and of mltrainer do not count.

    Args:
        found: What was read.
        root: The project's folder.
        prefix: Where the Python that read them is installed.
    """
    left_out = (*SYSTEM, OURS, os.path.join(prefix or OURS, ""))
    named = [row._replace(path=_from(row.path, root)) for row in found]
    return {row.path: _row(row, root) for row in named if not row.path.startswith(left_out)}


def _from(path: str, root: Path) -> str:
    """Return a path as records hold it: of a file of the project, however the program named it, relative to the project."""
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path


def _row(read: Read, root: Path) -> dict[str, Any]:
    """Return a file's row as the program found it; of one too large to be digested there, as it is now."""
    if read.sha256 is not None:
        return {"path": read.path, "sha256": read.sha256, "size": read.bytes}
    return rows_of_paths([read.path], root)[0]


def rows_of_paths(paths: Sequence[str], root: Path) -> list[dict[str, Any]]:
    """Return the rows of files as they are now; of one that is gone without a digest."""
    return [
        {"path": path, "sha256": sha256_file(root / path), "size": (root / path).stat().st_size}
        if (root / path).is_file()
        else {"path": path, "sha256": "", "size": 0}
        for path in paths
    ]
