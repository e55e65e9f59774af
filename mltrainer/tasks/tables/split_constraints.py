"""The constraints of a table's columns on its split: groups, times, given splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mltrainer.configs.project import ColumnKind, Data, Split
from mltrainer.errors import InputError
from mltrainer.tasks.splits import SPLITS, WORDS, SplitConstraints, equal_rows
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.schema import Schema, column_of


def without_running_days(schema: Schema, time: str | None) -> Schema:
    """Return a schema without the running days of the date by which rows are split: no later one was ever trained on."""
    features = [replace(c, parts=c.parts[1:]) if c.name == time and c.parts[:1] == ("days",) else c for c in schema.features]
    return replace(schema, features=[c for c in features if c.kind not in ("date", "date_day_first") or c.parts])


def of_columns(schema: Schema, split: Split, keys: Callable[[], np.ndarray], data: Data | None) -> SplitConstraints:
    """Return the constraints by the split's columns, or of equal rows.

    Args:
        schema: The table.
        split: Names the columns.
        keys: Give a hash of each row's features.
        data: Says what kinds the columns are.

    Raises:
        InputError: There is no such column, or it does not hold what it must.
    """
    kinds = data.columns if data else {}
    if split.column is not None:
        given = _given(schema, _column(schema, split.column, "split.column", "category"))
        return replace(equal_rows(split, keys), given=given)
    if split.time is not None:
        return SplitConstraints(times=_times(schema, split.time, kinds.get(split.time)))
    if split.group is not None:
        column = _column(schema, split.group, "split.group", "category")
        alone = np.arange(len(schema)) + len(column.texts)  # a row without a group is one by itself
        return SplitConstraints(units=np.where(column.missing, alone, column.values))
    return equal_rows(split, keys)


def _column(schema: Schema, name: str, key: str, kind: ColumnKind | None) -> Column:
    table = schema.table
    if name not in table.columns:
        columns = ", ".join(list(table.columns)[:12])
        raise InputError(f"{table.place} has no column {name!r}", where=key, mend=f"name one of its columns: {columns}")
    return column_of(table, name, kind).take_rows(schema.used_rows)


def _times(schema: Schema, name: str, kind: ColumnKind | None) -> np.ndarray:
    """Return each row's moment, in seconds or in the column's own numbers."""
    column = _column(schema, name, "split.time", kind)
    # From cells alone no column is taken for dates, so texts are tried as such here.
    if column.kind == "category":
        column = _column(schema, name, "split.time", "date")
    bad = column.missing if column.values.dtype == np.float64 else np.ones(len(schema), dtype=bool)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"{int(bad.sum())} of {len(schema)} rows have no time in column {name!r}, by which the rows are split",
            where=schema.where(row),
            mend=f"fix these cells, or say what they are: data: {{columns: {{{name}: date_day_first}}}}",
        )
    return column.values


def _given(schema: Schema, column: Column) -> np.ndarray:
    """Return the place of each row's split, which a column names."""
    meant = {word: name for name, words in WORDS.items() for word in words}
    places = [SPLITS.index(meant[text.lower()]) if text.lower() in meant else -1 for text in column.texts]
    named: np.ndarray = np.array([*places, -1])[column.values]
    wrong = np.flatnonzero(named < 0)
    if len(wrong):
        raise InputError(
            f"{len(wrong)} rows of column {column.name!r} name no split; train, validation and test are known",
            where=schema.where(int(wrong[0])),
            mend="fix these cells, or split by something else",
        )
    return named
