"""Old versions of a project's files in git's history, read in bounded time, without checkout or text conversion."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.records.reading import RECORD_FILE, Record, record_of
from mltrainer.records.trial_table import reference_of
from mltrainer.reproducibility.git import files_at, run
from mltrainer.workspace import json_or_none, phase_folder

TIMEOUT_S = 10.0
MOST_VERSIONS = 500  # versions of one file
MOST_BYTES = 4 << 20  # bytes of one version: a ledger of a hundred openings has a tenth of that
LOG = (
    *("log", "--no-show-signature", "--no-ext-diff", "--no-textconv"),
    *("--topo-order", "--full-history", "-m", "--raw", "--no-abbrev", "--format="),
)


def ledgers(root: Path, path: str, *, every_branch: bool = True) -> list[Any]:
    """Return the committed versions of a JSON file, as `versions` does; invalid JSON is left out."""
    return [part for data in versions(root, path, every_branch=every_branch) if (part := json_or_none(data)) is not None]


def versions(root: Path, path: str, *, every_branch: bool = True) -> list[bytes]:
    """Return the committed versions of a file, oldest first; large ones are left out.

    Args:
        root: The project's folder.
        path: The file, relative to it.
        every_branch: Whether to read all branches and tags; else only the present commit's history.

    Raises:
        GitError: There is no repository, or git cannot say in time.
    """
    where = ("--all",) if every_branch else ("HEAD",)
    raw = run(root, *LOG, f"--max-count={MOST_VERSIONS}", *where, "--", path, timeout_s=TIMEOUT_S)
    names = [line.split()[3] for line in os.fsdecode(raw).splitlines() if line.startswith(":")]
    # Git lists the newest first; an object of zeros is a deletion.
    objects = [name for name in dict.fromkeys(reversed(names)) if name.strip("0")]
    return _blobs(root, objects)


def _blobs(root: Path, names: Sequence[str]) -> list[bytes]:
    """Return the content of objects that are not too large."""
    # Sizes first: a committed file may have any length, and git would send all of it.
    small = [name for name, size in _sizes(root, names).items() if size <= MOST_BYTES]
    if not small:
        return []
    data = run(root, "cat-file", "--batch", stdin="".join(f"{name}\n" for name in small).encode(), timeout_s=TIMEOUT_S)
    blobs = []
    while data:
        head, _, rest = data.partition(b"\n")
        size = int(head.split()[2])
        blobs.append(rest[:size])
        data = rest[size + 1 :]
    return blobs


def _sizes(root: Path, names: Sequence[str]) -> dict[str, int]:
    """Return the size of each present object; a partial clone lacks others."""
    if not names:
        return {}
    answer = run(root, "cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in names).encode(), timeout_s=TIMEOUT_S)
    rows = [line.split() for line in answer.decode().splitlines()]
    return {row[0]: int(row[2]) for row in rows if len(row) == 3}


def marks(root: Path) -> list[list[int] | None] | None:
    """Return size and times of the files that change with a repository's present commit; None outside of a repository.

    Times of change cannot be set back, so that they are unlike in every copy of a repository.
    """
    repository = repository_of(root)
    if repository is None:
        return None
    place = repository / ".git"
    if place.is_file():
        with contextlib.suppress(OSError, ValueError):
            place = place.parent / place.read_text("utf-8")[:4096].removeprefix("gitdir:").strip()
    return [_mark(place / name) for name in ("HEAD", "logs/HEAD")]


def repository_of(root: Path) -> Path | None:
    """Return the folder of the repository around a project's folder, which may be that folder; None outside of one."""
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)


def _mark(path: Path) -> list[int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def branches(root: Path) -> list[str]:
    """Return the full names of the local branches; none outside of a repository.

    Raises:
        GitError: Git cannot say.
    """
    return [] if marks(root) is None else run(root, "for-each-ref", "--format=%(refname)", "refs/heads").decode().split()


def remotes(root: Path) -> list[str]:
    """Return the names of the repositories that a clone can fetch from.

    Raises:
        GitError: Git cannot say.
    """
    return run(root, "remote").decode(errors="replace").split()


def committed_record(root: Path, commit: str, phase: str, raw: bytes) -> Record:
    """Return a phase's record in a commit, with the trials beside it in one of a long search.

    Args:
        root: The project's folder.
        commit: The commit.
        phase: The phase.
        raw: The content of the record's file in it.

    Raises:
        GitError: Git cannot say.
    """
    folder, reference = phase_folder(phase), reference_of(raw)
    table = f"{folder}/{reference.file}" if reference else None
    return record_of(raw, phase, f"{folder}/{RECORD_FILE}", files_at(root, commit, [table]).get(table) if table else None)


def holds_commit(root: Path, commit: str) -> bool:
    """Return True if a repository holds a commit.

    Raises:
        GitError: There is no repository, or git cannot say.
    """
    if not commit.isalnum():
        return False
    answer = run(root, "cat-file", "--batch-check", stdin=f"{commit}\n".encode(), timeout_s=TIMEOUT_S)
    return answer.decode().split()[1:2] == ["commit"]


def is_shallow(root: Path) -> bool:
    """Return True if older history is not in this clone.

    Raises:
        GitError: There is no repository.
    """
    return run(root, "rev-parse", "--is-shallow-repository").strip() == b"true"


def contents(root: Path, commit: str, paths: Sequence[str]) -> dict[str, bytes | None]:
    """Return files of a project as a commit holds them, without any conversion; None for a missing or large one.

    Raises:
        GitError: Git cannot say.
    """
    asked = "".join(f"{commit}:./{path}\n" for path in paths)
    answer = run(root, "cat-file", "--batch-check", stdin=asked.encode(), timeout_s=TIMEOUT_S).decode().splitlines()
    names = {path: line.split()[0] for path, line in zip(paths, answer, strict=True) if line.endswith(tuple("0123456789"))}
    small = [name for name, size in _sizes(root, [*dict.fromkeys(names.values())]).items() if size <= MOST_BYTES]
    blobs = dict(zip(small, _blobs(root, small), strict=True))
    return {path: blobs.get(names.get(path, "")) for path in paths}


class Commit(NamedTuple):
    """A commit: its name, its author as `Name <mail>`, and the day on which it was written."""

    name: str
    author: str
    day: str


def commits(root: Path, since: str, path: str) -> list[Commit]:
    """Return the commits from a revision to the present one that change a file or folder, the oldest first.

    Raises:
        GitError: Git cannot say in time.
    """
    command = ("log", "--reverse", "--format=%H%x00%an <%ae>%x00%as", f"{since}..HEAD", "--", path)
    return [Commit(*line.split("\0")) for line in run(root, *command, timeout_s=TIMEOUT_S).decode(errors="replace").splitlines()]


def authors(root: Path, path: str, key: str) -> list[str]:
    """Return the author, as `Name <mail>`, of each line of a JSON file that begins with a key, in the order of the lines.

    Raises:
        GitError: The present commit does not hold the file, or git cannot say in time.
    """
    command = ("blame", "--line-porcelain", "--no-textconv", "HEAD", "--", path)
    found, name, mail = [], "", ""
    for line in run(root, *command, timeout_s=TIMEOUT_S).decode(errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        name, mail = (rest if kind == "author" else name), (rest if kind == "author-mail" else mail)
        if line.startswith("\t") and line.strip().startswith(f'"{key}":'):
            found.append(f"{name} {mail}")
    return found
