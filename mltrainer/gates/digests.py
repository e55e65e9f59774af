"""Digests of files, by size and times first, so that large ones are not read again."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError, MltrainerError
from mltrainer.looking import OutsideError, is_looking
from mltrainer.workspace import (
    Project,
    digest,
    files_of_tree,
    folder_sha256,
    pictures_below,
    read_json,
    sha256_file,
    tree_of,
    tree_sha256,
    write_atomic,
)

OUTSIDE = "not read"  # in place of the digest of a file behind a link that came with the project
OTHER_SIZE = "another size"  # in place of the digest of a large file that cannot be the expected one, and so is not read
NOT_HASHED = "not hashed"  # in place of the digest of a file that a read-only command would hash too long
SIZE_FIRST_FROM = 1 << 26  # bytes; smaller files are hashed in a tenth of a second
MOST_HASHED = 2 << 30  # bytes in one look, some seconds; a phase hashes all, and its digests are cached
WHY_NOT_HASHED = (
    f"not hashed, because a read-only command hashes at most {MOST_HASHED >> 30} GiB; "
    "digest recorded: mltrainer gate check --files hashes it"
)
MADE_WHEN_READ = ("/proc/", "/sys/")  # the system's own: /proc/kcore has 128 TiB
CACHE_FROM_BYTES = 1 << 16  # smaller files are quicker to hash than to look up


def _mark(stat: os.stat_result) -> list[int]:
    """Return a file's size, times and inode, which show a change: the change time cannot be set back."""
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


class FileDigests:
    """Returns a file's digest; large files are hashed again only if size, modification or change time differ.

    Args:
        project: The project with the cache; a read-only project works without.
        trust_times: Whether files with unchanged times are not hashed again; a read-only command hashes at most `MOST_HASHED`.
    """

    def __init__(self, project: Project, trust_times: bool = True) -> None:
        self._path = project.state_dir / "cache" / "digests.json"
        self._trust_times = trust_times
        self._cache: dict[str, Any] = {}
        self._changed = False
        self.begin()
        # A cache that is gone or damaged is an empty one: all that it held can be computed again.
        with contextlib.suppress(OSError, ValueError, TypeError, InputError):
            self._cache = dict(read_json(self._path))

    def begin(self) -> None:
        """Begin another look, with a new limit of hashed bytes."""
        self._left = MOST_HASHED if self._trust_times and is_looking() else None

    def of(self, path: Path, size: int | None = None) -> str | None:
        """Return the digest of a file, a folder of pictures or a tree of files; None if nothing is there, or for a pipe.

        Args:
            path: The file or folder.
            size: Bytes that the expected file has; a large file of another size is `OTHER_SIZE`, and not read.
        """
        try:
            stat = path.stat()
        except OSError:
            return self._of_tree(path)
        if size is not None and size != stat.st_size >= SIZE_FIRST_FROM and path.is_file():
            return OTHER_SIZE
        try:
            return self._of(path, stat)
        except OutsideError:
            return OUTSIDE

    def _of(self, path: Path, stat: os.stat_result) -> str:
        if path.is_dir():
            return self._of_folder(path)
        # Resolved first: a link of the project may lead there under any name.
        if not path.is_file() or os.path.realpath(path).startswith(MADE_WHEN_READ):
            return "not a file"
        if stat.st_size < CACHE_FROM_BYTES:
            return sha256_file(path)
        return self._remembered(path, _mark(stat), sha256_file, size=stat.st_size)

    def _of_folder(self, folder: Path) -> str:
        """Return the digest of a folder of pictures; all are hashed again if one of them has another mark."""
        with os.scandir(folder):
            pass  # a folder that may not be looked into is no empty one, which the walk takes it for
        marks: list[list[Any]] = [[name, *_mark((folder / name).stat())] for name in pictures_below(folder)]
        size = sum(mark[1] for mark in marks)
        return self._remembered(folder, digest(marks), folder_sha256, size=size) if marks else "not a file"

    def _of_tree(self, path: Path) -> str | None:
        """Return the digest of a tree of files; all are hashed again if one of them has another mark."""
        tree = tree_of(str(path))
        if tree is None or not Path(tree[0]).is_dir():
            return None
        folder, ending = Path(tree[0]), tree[1]
        marks: list[list[Any]] = [[name, *_mark((folder / name).stat())] for name in files_of_tree(folder, ending)]
        size = sum(mark[1] for mark in marks)
        return self._remembered(path, digest(marks), lambda _: tree_sha256(folder, ending), size=size) if marks else None

    def computed(self, path: Path, what: str, compute: Callable[[Path], str]) -> str | None:
        """Return a value computed from a file's content, cached and limited as digests are; None if the file is not here.

        Args:
            path: The file; for a folder's files, the one that changes with the computed value.
            what: Names it, apart from the file's digest.
            compute: Called where the file is small, changed, or was never looked at.
        """
        if not path.is_file():
            return None
        stat = path.stat()
        if stat.st_size < CACHE_FROM_BYTES:
            return compute(path)
        # `what` is part of the name: a file's digest and the digest of its weights are remembered side by side.
        return self._remembered(path, _mark(stat), compute, f" {what}", size=stat.st_size)

    def _remembered(self, path: Path, mark: Any, compute: Callable[[Path], str], what: str = "", *, size: int) -> str:
        name = f"{path}{what}"
        known = self._cache.get(name)
        if self._trust_times and known and known[0] == mark:
            return str(known[1])
        # After the look into the cache: a cached value costs nothing and does not count against the limit.
        if self._left is not None:
            if size > self._left:
                return NOT_HASHED
            self._left -= size
        value = compute(path)
        self._cache[name] = [mark, value]
        self._changed = True
        return value

    def rendered(self, phase: str, record: Path, key: str) -> dict[str, str] | None:
        """Return the digests of a phase's reports if they were rendered from the same input before; None otherwise.

        A cached entry counts only for the very file of the record, by times that nobody can set: a stranger's clone may
        bring a cache with other reports.
        """
        entry = self._cache.get(f"rendered {phase}") if self._trust_times else None
        return dict(entry[1]) if isinstance(entry, list) and entry[0] == [key, *_mark(record.stat())] else None

    def keep_rendered(self, phase: str, record: Path, key: str, digests: dict[str, str]) -> None:
        """Cache the digests of rendered reports for the next check; a check never gives a clone a state folder."""
        if self._path.parent.parent.is_dir():
            self._cache[f"rendered {phase}"] = [[key, *_mark(record.stat())], digests]
            self._changed = True

    def agreed(self, what: str, record: Path, state: list[Any]) -> bool:
        """Return True if git has confirmed a question before, for the very same record and repository state."""
        # A mark that could not be read stays None whatever changes: such a state is never remembered.
        return self._trust_times and None not in state and self._cache.get(f"agreed {what}") == [_mark(record.stat()), state]

    def agree(self, what: str, record: Path, state: list[Any]) -> None:
        """Remember git's confirmation of a question, if the project has a state folder."""
        if self._path.parent.parent.is_dir() and None not in state:
            self._cache[f"agreed {what}"] = [_mark(record.stat()), state]
            self._changed = True

    def save(self) -> None:
        """Save the cache, if the project can be written."""
        if self._changed:
            # A reviewer's clone may be read-only: the check has its answer, and only the next one takes as long again.
            with contextlib.suppress(MltrainerError, OSError):
                write_atomic(self._path, json.dumps(self._cache).encode())
