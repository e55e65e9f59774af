"""Tables from Parquet files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from mltrainer.errors import InputError
from mltrainer.tasks.content import WHOLE_FILE, Table
from mltrainer.tasks.tables.text_files import text_array


def read_parquet(data: bytes, place: str) -> Table:
    """Return the table of a Parquet file; nulls are missing values.

    Raises:
        InputError: The file is damaged or empty, or it holds nothing but nested values.
    """
    import polars

    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        raise InputError(f"not readable as Parquet: {error}", where=place, hint=WHOLE_FILE) from error
    if frame.height == 0:
        raise InputError(f"a table with {frame.width} columns, but no rows", where=place)
    count = frame.height
    nested = {name: _named(kind) for name, kind in frame.schema.items() if kind.is_nested()}
    if len(nested) < frame.width:
        frame = frame.drop(nested)
    notes = [
        f"column {name!r} holds {kind}, and is left out: write its parts as columns of their own, of numbers or text, to use it"
        for name, kind in nested.items()
    ]
    # Dropped one by one: a column's memory is free again before the next one is converted.
    columns = {name: _column(frame.drop_in_place(name), f"{place}, column {name!r}") for name in frame.columns}
    return Table(columns, lambda: np.arange(1, count + 1), place, notes=notes)


def _column(column: Any, where: str) -> Any:
    """Return numbers as float64, NaN for nulls, and anything else as text: dates in ISO form, booleans in lower case."""
    import polars

    kind = column.dtype
    if kind.is_integer() and column.ne_missing(column.cast(polars.Float64).cast(kind, strict=False)).any():
        return column.cast(polars.String).fill_null("")  # such as an id of 64 bits, of which a float64 loses digits
    if kind.is_numeric():
        # Copied, as polars' own memory is read-only.
        return column.cast(polars.Float64).fill_null(np.nan).to_numpy().copy()
    if kind.is_nested() or kind in (polars.Binary, polars.Object):
        raise InputError(f"numbers, text, dates or booleans were expected, found {_named(kind)}", where=where)
    if kind in (polars.String, polars.Categorical, polars.Enum, polars.Boolean, polars.Null):
        return column.cast(polars.String).fill_null("").str.strip_chars()
    return text_array(["" if cell is None else str(cell) for cell in column.to_list()])


def _named(kind: Any) -> str:
    return str(kind).lower()
