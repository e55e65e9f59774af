"""The location of a data file, in a folder of this machine or in a store that fsspec reaches, and the reading of its bytes."""

from __future__ import annotations

import glob
import math
import os
import re
import stat
import weakref
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mltrainer.errors import InputError
from mltrainer.tasks.stored.lru_cache import LruCache
from mltrainer.tasks.stored.stores import BRING, answering, store_of
from mltrainer.workspace import machine_faults

SCHEME = re.compile(r"^[a-z][a-z0-9+.:-]*://", re.IGNORECASE)
NUMBERS = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")
MOST_FILES = 1_000_000  # the most files that numbers in braces may name
PARQUET = ".parquet"
HELD_BYTES = 64 << 20  # the bytes that are held of a file fetched over a network


class OpenFile(Protocol):
    """An open file.

    Attributes:
        can_change_unseen: Whether its content can change while its mark stays, so that every reading is checked.
    """

    can_change_unseen: bool

    def read(self, offset: int, size: int) -> bytes:
        """Return some bytes; fewer where the file ends."""

    def close(self) -> None:
        """Close the file."""


class Location(Protocol):
    """The place of a file."""

    @property
    def name(self) -> str:
        """The file's name in messages and records."""

    @property
    def is_local(self) -> bool:
        """Whether it is in a folder of this machine."""

    def mark(self) -> list[Any]:
        """Return the values that show a change of the file without reading it.

        Raises:
            InputError: The file is missing or unreadable.
        """

    def beside(self, name: str) -> Location:
        """Return the place of a file of another name beside it."""

    def opened(self) -> OpenFile:
        """Return the file, open for reading."""


@dataclass(frozen=True)
class LocalFile:
    """A file in a folder of this machine; `name` is its path relative to the project."""

    path: Path
    name: str
    is_local = True

    def mark(self) -> list[Any]:
        """Return size, times and inode: the change time cannot be set back."""
        try:
            with machine_faults(self.name):
                found = os.stat(self.path)
        except FileNotFoundError as error:
            raise InputError("no such file", where=self.name, hint=BRING) from error
        except (OSError, ValueError) as error:  # links in a circle, a name that is too long or has a zero byte
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"no such file: {reason}", where=self.name, hint=BRING) from error
        if not stat.S_ISREG(found.st_mode):  # reading a pipe would wait for whoever writes to it
            raise InputError("a pipe or a device; a file was expected", where=self.name, hint="write what comes of it to a file")
        return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]

    def beside(self, name: str) -> LocalFile:
        """Return the place of a file of another name beside it."""
        return LocalFile(self.path.with_name(name), str(Path(self.name).with_name(name)))

    def opened(self) -> OpenFile:
        """Return the file, open for reading."""
        with machine_faults(self.name):
            return _Descriptor(os.open(self.path, os.O_RDONLY), self.name)


class _Descriptor:
    """An open file of this machine; reading moves no position, so that forked processes share it."""

    can_change_unseen = False

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name = descriptor, name
        self._closes = weakref.finalize(self, os.close, descriptor)

    def read(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        with machine_faults(self._name):
            # A single call reads 2 GiB at most.
            while size > 0 and (data := os.pread(self._descriptor, size, offset)):
                parts.append(data)
                offset, size = offset + len(data), size - len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._closes()


@dataclass(frozen=True)
class RemoteFile:
    """A file that fsspec reaches; `name` is its address."""

    name: str
    is_local = False

    def mark(self) -> list[Any]:
        """Return the size and the store's version of the file, such as an object's ETag."""
        store, path = store_of(self.name)
        with answering(self.name):
            return [store.size(path), store.ukey(path)]

    def beside(self, name: str) -> RemoteFile:
        """Return the address of a file of another name beside it."""
        return RemoteFile(f"{self.name.rpartition('/')[0]}/{name}")

    def opened(self) -> OpenFile:
        """Return the file, open for reading."""
        return _Fetched(self.name)


class _Fetched:
    """A file of a store; the bytes that were fetched last are held."""

    can_change_unseen = True

    def __init__(self, name: str) -> None:
        self._name = name
        self._store, self._path = store_of(name)
        with answering(name):
            self._size = int(self._store.size(self._path))
        self._held: LruCache[tuple[int, int], bytes] = LruCache(HELD_BYTES)

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self._size)
        return self._held.get((offset, end), partial(self._fetched, offset, end), end - offset) if end > offset else b""

    def _fetched(self, offset: int, end: int) -> bytes:
        with answering(self._name):
            return bytes(self._store.cat_file(self._path, start=offset, end=end))

    def close(self) -> None:
        self._held.clear()


def is_remote(source: str) -> bool:
    """Return True if a source is an address that fsspec reaches."""
    return SCHEME.match(source) is not None


def located(source: str, root: Path, suffixes: tuple[str, ...]) -> list[Location]:
    """Return the files that a source names, sorted: a file, a folder, a pattern with `*`, numbers as in `{000..099}`, an address.

    Args:
        source: The value of `data.source`.
        root: The project's folder.
        suffixes: The suffixes of the files that are taken from a folder.

    Raises:
        InputError: There is no such file.
    """
    count = math.prod(max(0, int(last) - int(first) + 1) for first, last in NUMBERS.findall(source))
    if count > MOST_FILES:
        what = f"{source!r} names {count:,} files; {MOST_FILES:,} were expected at most"
        raise InputError(what, where="data.source", hint="name those that are there, with *")
    named: list[Location] = []
    for name in _numbered(source):
        named += _in_store(name, suffixes) if is_remote(name) else _here(name, root, suffixes)
    if not named:
        raise InputError(f"no file is found by {source!r}", where="data.source", hint="a path is relative to the project")
    return named


def parquet_files(source: str, root: Path) -> list[Location] | None:
    """Return the Parquet files of a pattern, or of a folder that holds nothing else; None where a source is neither.

    Raises:
        InputError: A pattern finds none.
    """
    if "\0" in source or is_remote(source):
        return None
    path = root / source
    if path.is_dir():
        names = [one.name for one in path.iterdir() if not one.name.startswith((".", "_"))]
        return located(source, root, (PARQUET,)) if names and all(_is_data(one, (PARQUET,)) for one in names) else None
    is_pattern = glob.has_magic(source) or NUMBERS.search(source) is not None
    return located(source, root, (PARQUET,)) if is_pattern and source.endswith(PARQUET) and not path.exists() else None


def _numbered(source: str) -> list[str]:
    """Return a source with numbers in braces written out: `{000..099}` is 000 to 099."""
    found = NUMBERS.search(source)
    if found is None:
        return [source]
    first, last = found.groups()
    numbers = [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return [name for number in numbers for name in _numbered(f"{source[: found.start()]}{number}{source[found.end() :]}")]


def _here(name: str, root: Path, suffixes: tuple[str, ...]) -> list[Location]:
    path = os.path.join(root, name)
    if os.path.isdir(path):
        found = sorted(os.path.join(path, one) for one in os.listdir(path) if _is_data(one, suffixes))
    elif glob.has_magic(name) and not os.path.exists(path):
        found = sorted(glob.glob(os.path.join(glob.escape(str(root)), name), recursive=True))
    else:
        found = [path]  # whether it is there is seen when it is read
    files = [Path(one) for one in found if not os.path.isdir(one)]
    return [LocalFile(one, Path(os.path.relpath(one, root)).as_posix()) for one in files]


def _is_data(name: str, suffixes: tuple[str, ...]) -> bool:
    # Hidden files, and those that writers of tables leave beside, such as _SUCCESS.
    return name.lower().endswith(suffixes) and not name.startswith((".", "_"))


def _in_store(address: str, suffixes: tuple[str, ...]) -> list[Location]:
    store, path = store_of(address)
    with answering(address):
        return [RemoteFile(store.unstrip_protocol(one)) for one in sorted(_paths_in(store, path, suffixes))]


def _paths_in(store: Any, path: str, suffixes: tuple[str, ...]) -> list[str]:
    if glob.has_magic(path):
        return list(store.glob(path))
    if store.isdir(path):
        return [one for one in store.ls(path, detail=False) if _is_data(one.rpartition("/")[2], suffixes)]
    return [path]
