"""Folders listed in the opposite order: the file system decides the order, and nothing may depend on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any


class _Entries:
    """The iterator of `os.scandir`, the last entry first."""

    def __init__(self, entries: Any) -> None:
        with entries:
            self._entries = list(entries)[::-1]
        self._next = iter(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return self._next

    def __next__(self) -> Any:
        return next(self._next)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def close(self) -> None:
        """Nothing is held open."""


def begin(_process: Any) -> None:
    """Make `os.listdir` and `os.scandir` return the same entries in the opposite order, for this process and its forks."""
    listdir, scandir = os.listdir, os.scandir
    os.listdir = lambda path=".": listdir(path)[::-1]  # type: ignore[assignment]  # one of its overloads
    os.scandir = lambda path=".": _Entries(scandir(path))  # type: ignore[assignment]  # it has what an iterator of entries has
    os.supports_fd.update((os.listdir, os.scandir))  # shutil asks whether they take descriptors, as these do
