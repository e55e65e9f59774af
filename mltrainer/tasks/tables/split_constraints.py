"""The constraints of a table's columns on its split: groups, times, given splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mltrainer.configs.project import ColumnKind, Data, Split
from mltrainer.errors import InputError
from mltrainer.tasks.content import Table
from mltrainer.tasks.splits import SplitConstraints, equal_rows
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.schema import Schema, column_of
from mltrainer.tasks.tables.split_columns import place_of


def without_running_days(schema: Schema, time: str | None) -> Schema:
    """Return a schema without the running days of the date by which rows are split: training rows have no later ones."""
    features = [replace(c, parts=c.parts[1:]) if c.name == time and c.parts[:1] == ("days",) else c for c in schema.features]
    return replace(schema, features=[c for c in features if c.kind not in ("date", "date_day_first") or c.parts])


@dataclass(frozen=True)
class Rows:
    """The rows of a table that are used."""

    table: Table
    used: np.ndarray

    def __len__(self) -> int:
        return len(self.used)

    def where(self, row: int) -> str:
        """Return the place of one of these rows as `file:line`."""
        return self.table.where(int(self.used[row]))


def of_columns(rows: Rows, split: Split, keys: Callable[[], np.ndarray], data: Data | None) -> SplitConstraints:
    """Return the constraints by the split's columns, or of equal rows.

    Args:
        rows: The table's rows.
        split: The config's split, with the columns.
        keys: Returns a hash of each row's features.
        data: The config's data, with the kinds of columns; None: none are given.

    Raises:
        InputError: There is no such column, or its cells are not valid.
    """
    kinds = data.columns if data else {}
    if split.column is not None:
        given = _given(rows, _column(rows, split.column, "split.column", "category"))
        return replace(equal_rows(split, keys), given=given)
    if split.time is not None:
        return SplitConstraints(times=_times(rows, split.time, kinds.get(split.time)))
    if split.group is not None:
        column = _column(rows, split.group, "split.group", "category")
        alone = np.arange(len(rows)) + len(column.texts)  # a row without a group is one by itself
        return SplitConstraints(units=np.where(column.missing, alone, column.values))
    return equal_rows(split, keys)


def _column(rows: Rows, name: str, key: str, kind: ColumnKind | None) -> Column:
    table = rows.table
    if name not in table.columns:
        columns = ", ".join(list(table.columns)[:12])
        raise InputError(f"{table.place} has no column {name!r}", where=key, hint=f"name one of its columns: {columns}")
    return column_of(table, name, kind).take_rows(rows.used)


def _times(rows: Rows, name: str, kind: ColumnKind | None) -> np.ndarray:
    """Return each row's moment, in seconds or in the column's numbers."""
    column = _column(rows, name, "split.time", kind)
    # Dates are never inferred from cells alone, so texts are tried as dates here.
    if column.kind == "category":
        column = _column(rows, name, "split.time", "date")
    bad = column.missing if column.values.dtype == np.float64 else np.ones(len(rows), dtype=bool)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"{int(bad.sum())} of {len(rows)} rows have no time in column {name!r}, by which the rows are split",
            where=rows.where(row),
            hint=f"fix these cells, or say what they are: data: {{columns: {{{name}: date_day_first}}}}",
        )
    return column.values


def _given(rows: Rows, column: Column) -> np.ndarray:
    """Return the place of each row's split, which a column names."""
    places = [place_of(column.name, text) for text in column.texts]
    named: np.ndarray = np.array([*places, -1])[column.values]
    wrong = np.flatnonzero(named < 0)
    if len(wrong):
        raise InputError(
            f"{len(wrong)} rows of column {column.name!r} name no split; train, validation and test are known",
            where=rows.where(int(wrong[0])),
            hint="fix these cells, or split by something else",
        )
    return named
