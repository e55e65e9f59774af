"""Tables from Parquet files; the one module that imports pyarrow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from mltrainer.errors import InputError
from mltrainer.tasks.content import Table
from mltrainer.tasks.tables.text_files import text_array


def read_parquet(data: bytes, place: str) -> Table:
    """Return the table of a Parquet file; nulls are missing values.

    Raises:
        InputError: pyarrow is not installed, the file is damaged or empty, or a column holds nested values.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("reading Parquet needs pyarrow", where=place, mend='pip install "mltrainer[tables]"') from error
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(data))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"not readable as Parquet: {error}", where=place) from error
    names = table.column_names
    if len(set(names)) < len(names):
        raise InputError(f"duplicate column names: {', '.join(sorted({n for n in names if names.count(n) > 1}))}", where=place)
    if table.num_rows == 0:
        raise InputError(f"a table with {len(names)} columns, but no rows", where=place)
    columns = {name: _column(pyarrow, table.column(name), f"{place}, column {name!r}") for name in names}
    return Table(columns, np.arange(1, table.num_rows + 1), place)


def _column(pyarrow: Any, column: Any, where: str) -> np.ndarray:
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind):
        cells = column.to_pylist()
        return np.array([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    if pyarrow.types.is_nested(kind) or pyarrow.types.is_binary(kind):
        raise InputError(f"numbers, text, dates or booleans were expected, found {kind}", where=where)
    if pyarrow.types.is_boolean(kind):
        return text_array(["" if cell is None else str(cell).lower() for cell in column.to_pylist()])
    return text_array(["" if cell is None else str(cell) for cell in column.to_pylist()])
