"""Files that were read, as records hold them: path, digest and size."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import mltrainer
from mltrainer.errors import GateError
from mltrainer.observe.inputs import Read
from mltrainer.records.common import FileRow
from mltrainer.workspace import TREE, files_of_tree, tree_of, tree_sha256

OURS = str(Path(mltrainer.__file__).parent)  # a part of the environment, which is recorded whole
MANY = 100  # files of one kind; chosen by us: a gate check digests this number of small files in some milliseconds
# Of the machine, not of the training
SYSTEM = tuple(f"/{name}/" for name in ("etc", "usr", "lib", "lib32", "lib64", "bin", "sbin", "run", "var/cache", "var/lib"))


def rows_of_reads(reads: Iterable[Read], root: Path, prefix: str) -> dict[str, FileRow]:
    """Return the rows of the files that were read, by path; files of the machine, of Python and of mltrainer do not count.

    Args:
        reads: The files that were read.
        root: The project's folder.
        prefix: The folder where the Python that read them is installed.
    """
    left_out = (*SYSTEM, OURS, os.path.join(prefix or OURS, ""))
    named = [row._replace(path=_from(row.path, root)) for row in reads]
    return {row.path: _row(row, root) for row in named if not row.path.startswith(left_out)}


def _from(path: str, root: Path) -> str:
    """Return a path as records hold it: of a file of the project, however the program named it, relative to the project."""
    return Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else path


def _row(read: Read, root: Path) -> FileRow:
    """Return a file's row as the program read it; for a file too large to be digested then, its present row."""
    if read.sha256 is not None:
        return FileRow(path=read.path, sha256=read.sha256, size=read.bytes)
    return _row_now(read.path, root)


def rows_of_paths(paths: Sequence[str], root: Path) -> list[FileRow]:
    """Return the present rows of files, and of trees of files; a missing file's row has no digest."""
    return [_row_now(path, root) for path in paths]


def _row_now(path: str, root: Path) -> FileRow:
    if (root / path).is_file():
        return FileRow.of(root / path, path)
    tree = tree_of(path)
    if tree is None or not (root / tree[0]).is_dir():
        return FileRow(path=path, sha256="", size=0)
    folder, ending = root / tree[0], tree[1]
    size = sum((folder / name).stat().st_size for name in files_of_tree(folder, ending))
    return FileRow(path=path, sha256=tree_sha256(folder, ending), size=size)


def require_as_recorded(rows: Sequence[FileRow], root: Path) -> None:
    """Refuse files that differ from planning's record.

    Raises:
        GateError: One is gone, or changed.
    """
    for row, now in zip(rows, rows_of_paths([row.path for row in rows], root), strict=True):
        if now.sha256 != row.sha256:
            raise GateError(
                "the data differs from planning's record",
                expected=f"sha256 {row.sha256[:12]}",
                found=now.sha256[:12] if now.sha256 else "no file",
                where=row.path,
                hint="restore it, or record the new data with `mltrainer phase run planning`",
            )


# --- many files -----------------------------------------------------------------------------------


def gathered(rows: Sequence[FileRow], root: Path) -> list[FileRow]:
    """Return rows in which many files of one kind in one place become a tree: all such files below their folder.

    So a run that opens others of them than the probes did opens nothing that is not bound.

    Args:
        rows: The rows of single files.
        root: The project's folder.
    """
    groups: dict[tuple[str, str], list[FileRow]] = {}
    for row in rows:
        groups.setdefault(_kind_of(row.path), []).append(row)
    many = {key: group for key, group in groups.items() if key[0] and len(group) > MANY}
    trees = [f"{os.path.commonpath([os.path.dirname(row.path) for row in group])}{TREE}{key[1]}" for key, group in many.items()]
    alone = [row for key, group in groups.items() if key not in many for row in group]
    return sorted([*alone, *rows_of_paths(trees, root)], key=lambda row: row.path)


def _kind_of(path: str) -> tuple[str, str]:
    """Return the first folders of a file's path, and its ending; no folders if the path has too few to separate kinds."""
    folder, ending = os.path.dirname(path), os.path.splitext(path)[1]
    parts = folder.split(os.sep)
    first = os.sep.join(parts[:4]) if os.path.isabs(path) else parts[0]
    return (first, ending) if ending and (len(parts) >= 4 or not os.path.isabs(path)) else ("", ending)


def unbound(opened: Iterable[FileRow], bound: Sequence[FileRow]) -> list[str]:
    """Return the paths of opened files that other rows do not bind, or bind with another digest.

    Args:
        opened: Rows of the opened files.
        bound: Rows of files and of trees.
    """
    known = {row.path: row.sha256 for row in bound}
    trees = [tree for row in bound if (tree := tree_of(row.path)) is not None]
    return [row.path for row in opened if known.get(row.path) != row.sha256 and not _is_in(row.path, trees)]


def unplanned(
    planned: Sequence[FileRow] | None, unsteady: Sequence[str] | None, opened: Sequence[FileRow] | None
) -> list[str] | None:
    """Return the files that a run opened and planning did not bind; None if one of them did not observe files.

    Args:
        planned: The files that planning binds.
        unsteady: The files that the run saw change, and does not bind.
        opened: The files that the run opened.
    """
    if planned is None or opened is None:
        return None
    return unbound([row for row in opened if row.path not in (unsteady or ())], planned)


def _is_in(path: str, trees: Sequence[tuple[str, str]]) -> bool:
    tree = tree_of(path)
    folder, ending = tree or (os.path.dirname(path), os.path.splitext(path)[1])
    return tree is None and any(ending == end and f"{folder}/".startswith(f"{top}/") for top, end in trees)
