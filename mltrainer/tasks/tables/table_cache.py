"""A cache of a large table's columns in the state folder: later processes map them into memory instead of parsing them again.

A folder per file content holds an array per column and kind. Everything in it is verified by digest where it is read; if that
fails, it is read from the table and stored again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mltrainer.errors import MachineError
from mltrainer.tasks.tables.columns import Column, parse_column
from mltrainer.workspace import digest, is_sealed, pretty_json, seal, sha256_file, without_seal, write_atomic

if TYPE_CHECKING:
    from mltrainer.configs.project import ColumnKind
    from mltrainer.tasks.tables.columns import Cells

FORM = 2  # the version of the stored form; other versions are not read
ARRAYS = ("values", "wrong", "lookup")


@dataclass(frozen=True)
class _About:
    """A table, as its file holds it; `later` and `notes` where there are any."""

    form: int
    place: str
    names: list[str]
    rows: int
    content_sha256: str
    later: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class _AboutColumn:
    """A column, as its file holds it, with the digests of its parts."""

    form: int
    kind: ColumnKind
    parts: list[str]
    sha256: dict[str, str]
    unit: str = ""


A = TypeVar("A", _About, _AboutColumn)


class TableCache:
    """The cache of one table.

    Attributes:
        folder: The cache's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._about = self._read("table.json", _About)

    @property
    def names(self) -> list[str] | None:
        """The table's columns, or None where nothing is kept yet."""
        return self._about.names if self._about else None

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self._about.rows if self._about else 0

    @property
    def content_sha256(self) -> str | None:
        """The digest of all cells, or None where nothing is kept yet."""
        return self._about.content_sha256 if self._about else None

    @property
    def later(self) -> tuple[tuple[int, str], ...]:
        """The first row and the name of each file after the first."""
        return tuple((first, place) for first, place in self._about.later) if self._about else ()

    @property
    def notes(self) -> list[str]:
        """Sentences on unusual choices in reading the table."""
        return list(self._about.notes) if self._about else []

    def keep(
        self, place: str, names: list[str], rows: int, content_sha256: str, later: Sequence[tuple[int, str]], notes: list[str]
    ) -> None:
        """Store the facts of the whole table; caches of the same file with other content are removed."""
        self._about = _About(FORM, place, names, rows, content_sha256, list(later), notes)
        for other in self.folder.parent.glob("*/table.json"):
            about = TableCache(other.parent)._about
            if about is not None and about.place == place:
                shutil.rmtree(other.parent, ignore_errors=True)
        self._write("table.json", self._about)

    def column(self, name: str, kind: ColumnKind | None, cells: Callable[[], Cells]) -> Column:
        """Return a column from the cache, or parsed now and stored for the next time."""
        # A digest, as a column may have a name that no file can have.
        key = digest([name, kind])[:16]
        found = self._loaded(name, key)
        return found if found is not None else self._parsed_column(name, kind, key, cells())

    def _parsed_column(self, name: str, kind: ColumnKind | None, key: str, cells: Cells) -> Column:
        column = parse_column(name, cells, kind)
        arrays = {part: array for part in ARRAYS if (array := getattr(column, part)) is not None}
        files = {f"{part}.npy": _saved(array) for part, array in arrays.items()} | {
            "texts.json": json.dumps(column.texts).encode()
        }
        sha256 = {part: hashlib.sha256(data).hexdigest() for part, data in files.items()}
        with contextlib.suppress(MachineError, OSError):  # a disk that is full costs time, no run
            for part, data in files.items():
                write_atomic(self.folder / f"{key}.{part}", data)
            # Last: after a crash before it, the parts are named by nothing and written again.
            self._write(f"{key}.json", _AboutColumn(FORM, column.kind, list(column.parts), sha256, column.unit))
        return column

    def _loaded(self, name: str, key: str) -> Column | None:
        about = self._read(f"{key}.json", _AboutColumn)
        if about is None or not all(self._is_intact(f"{key}.{part}", sha256) for part, sha256 in about.sha256.items()):
            return None
        arrays = {
            part: np.load(self.folder / f"{key}.{part}.npy", mmap_mode="r", allow_pickle=False)
            for part in ARRAYS
            if f"{part}.npy" in about.sha256
        }
        texts = json.loads((self.folder / f"{key}.texts.json").read_bytes())
        return Column(name, about.kind, texts=texts, parts=tuple(about.parts), unit=about.unit, **arrays)

    def _is_intact(self, name: str, sha256: str) -> bool:
        path = self.folder / name
        return path.is_file() and sha256_file(path) == sha256

    def _write(self, name: str, about: _About | _AboutColumn) -> None:
        given = {key: value for key, value in vars(about).items() if key not in ("later", "notes") or value}
        with contextlib.suppress(MachineError, OSError):
            write_atomic(self.folder / name, pretty_json(seal(given)))

    def _read(self, name: str, kind: type[A]) -> A | None:
        """Return a file's sealed record, or None where it is missing, damaged or of another form."""
        try:
            given = json.loads((self.folder / name).read_bytes())
            sound = is_sealed(given)
            about = kind(**without_seal(given)) if sound else None
        except (OSError, ValueError, TypeError):
            return None
        return about if about is not None and about.form == FORM else None


def _saved(array: np.ndarray) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array, allow_pickle=False)
    return raw.getvalue()


class LazyColumns(Mapping[str, Any]):
    """The cells of a table by column, read on first use."""

    def __init__(self, names: list[str], read: Callable[[], Mapping[str, Any]]) -> None:
        self._names, self._read = names, read
        self._found: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        if self._found is None:
            self._found = self._read()
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names
