"""Rows of Parquet files, read row group by row group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mltrainer.errors import InputError, first_repeated
from mltrainer.tasks.stored.lru_cache import LruCache
from mltrainer.tasks.stored.manifest import FileManifest, Slots, StoredFile
from mltrainer.tasks.stored.readable import Readable
from mltrainer.tasks.stored.records import WINDOW_BYTES, Records

OPEN_FILES = 64  # files whose descriptors a process holds
INSTALL = "pip install 'mltrainer[data]'"


def _parquet(file: StoredFile) -> Any:
    """Return a stored file as one of Parquet.

    Raises:
        InputError: pyarrow is not installed, or the file is no Parquet file.
    """
    name = file.manifest.location.name
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            "Parquet is read by row groups with pyarrow, which is not installed", where=name, hint=INSTALL
        ) from error
    try:
        return parquet.ParquetFile(Readable(file), pre_buffer=False)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"not readable as Parquet: {error}", where=name, hint="bring the whole file") from error


def row_group_slots(file: StoredFile) -> Slots:
    """Return the row groups of a Parquet file."""
    found = _parquet(file).metadata
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


class RowGroups(Records):
    """The rows of Parquet files: dicts by column. The row groups that were read last are held.

    Numbers without gaps are NumPy's, lists of numbers arrays, anything else is a Python value; a missing cell is None.

    Args:
        files: The files' manifests.
        ignore: Columns that are not read.
    """

    kind = "parquet"

    def __init__(self, files: list[FileManifest], ignore: Sequence[str] = ()) -> None:
        super().__init__(files)
        self._ignore = tuple(ignore)
        self._groups = [(file, group) for file, one in enumerate(files) for group in range(len(one.slots))]
        self._sizes = self.slots[1]
        self._held: LruCache[int, dict[str, _Cells]] = LruCache(2 * WINDOW_BYTES)  # as a batch may be in two windows
        self._open: LruCache[int, Any] = LruCache(OPEN_FILES)
        self._schema: Any = None  # of the file that was opened first

    def read(self, slot: int, row: int) -> Any:
        """Return a row by column."""
        columns = self._held.get(slot, lambda: self._read_group(slot), int(self._sizes[slot]))
        return {name: cells(row) for name, cells in columns.items()}

    def place(self, slot: int, row: int) -> str:
        """Return file and row, counted from 1."""
        file, group = self._groups[slot]
        before = sum(rows for rows, _ in self.files[file].slots[:group])
        return f"{self.files[file].location.name}:{before + row + 1}"

    def _read_group(self, slot: int) -> dict[str, _Cells]:
        import pyarrow

        number, group = self._groups[slot]
        file, name = self._file(number), self.files[number].location.name
        wanted = [column for column in file.schema_arrow.names if column not in self._ignore]
        try:
            # Read by this thread alone: threads of a library do not survive the fork of a loader process.
            table = file.read_row_group(group, columns=wanted, use_threads=False)
        except (pyarrow.ArrowException, OSError) as error:
            what = f"row group {group} is not readable as Parquet: {error}"
            raise InputError(what, where=name, hint="bring the whole file, or write it again") from error
        return {column: _cells(table.column(column).combine_chunks()) for column in wanted}

    def _file(self, number: int) -> Any:
        return self._open.get(number, lambda: self._opened(number))

    def _opened(self, number: int) -> Any:
        """Return one of the files, opened now, whose columns are those of the file that was opened first.

        Raises:
            InputError: The columns differ.
        """
        found, name = _parquet(StoredFile(self.files[number])), self.files[number].location.name
        self._schema = self._schema or found.schema_arrow
        self._refuse_twice(found.schema_arrow.names, name)
        if not found.schema_arrow.equals(self._schema):
            what = f"its columns are {_listed(found.schema_arrow)}; {_listed(self._schema)} were expected, as of the others"
            raise InputError(what, where=name, hint="give all files the same columns")
        return found

    def _refuse_twice(self, columns: Sequence[str], name: str) -> None:
        twice = first_repeated([one for one in columns if one not in self._ignore])
        if twice is not None:
            hint = f"rename one of them, or leave them out: data: {{ignore: [{twice}]}}"
            raise InputError(f"two columns are called {twice!r}", where=name, hint=hint)


def _listed(schema: Any) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


_Cells = Callable[[int], Any]


def _cells(column: Any) -> _Cells:
    """Return the reader of a cell of a column by its row."""
    import pyarrow

    kind, is_whole = column.type, not column.null_count
    if is_whole and _is_number(kind):
        cell: _Cells = column.to_numpy(zero_copy_only=False).__getitem__
        return cell
    if pyarrow.types.is_fixed_size_list(kind) and is_whole and _is_number(kind.value_type) and not column.flatten().null_count:
        rows = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), kind.list_size)
        # Copied, as Arrow's memory is read-only.
        return lambda row: rows[row].copy()
    if pyarrow.types.is_list(kind) and _is_number(kind.value_type):
        return lambda row: _array(column[row].values)
    return lambda row: column[row].as_py()


def _is_number(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind))


def _array(values: Any) -> np.ndarray | None:
    return None if values is None else np.array(values.to_numpy(zero_copy_only=False))
