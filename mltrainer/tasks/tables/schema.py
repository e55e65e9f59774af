"""Tables: what kind each column is, which task a target asks for, and one matrix of numbers for a model.

Kinds are read from all rows, as they are a table's form; everything that is learned - vocabularies, medians,
means - comes from the training split alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mltrainer.errors import InputError
from mltrainer.tasks.content import TWO_CLASSES, Table

MISSING = frozenset({"", "NA", "NaN", "nan", "null", "None", "?"})
NUMERIC_SHARE = 0.9  # chosen by us: from this share of numbers on, text in a column is taken for a mistake, not for a category
UNKNOWN = -1.0

Kind = Literal["number", "category"]


@dataclass(frozen=True)
class Column:
    """A column as it was understood.

    Attributes:
        name: Its name.
        kind: Number or category.
        values: float64 with NaN for missing, for numbers; text with "" for missing, for categories.
        junk: Rows of a number column that hold neither a number nor a missing marker.
    """

    name: str
    kind: Kind
    values: np.ndarray
    junk: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """Which rows have no value."""
        empty: np.ndarray = np.isnan(self.values) if self.kind == "number" else np.equal(self.values, "").astype(bool)
        return empty

    def distinct(self, ids: np.ndarray) -> int:
        """Return how many values occur in some rows, missing ones aside."""
        return len(np.unique(self.values[ids][~self.missing[ids]]))


def understand(name: str, cells: np.ndarray) -> Column:
    """Return a column with its kind: numbers where at least 90 % of its values are, else categories."""
    none = np.zeros(0, dtype=np.int64)
    if cells.dtype != object:
        return Column(name, "number", cells.astype(np.float64), none)
    missing = np.array([cell in MISSING for cell in cells], dtype=bool)
    numbers = [None if gone else _number(cell) for cell, gone in zip(cells, missing, strict=True)]
    junk = np.array([n is None and not gone for n, gone in zip(numbers, missing, strict=True)], dtype=bool)
    present = len(cells) - int(missing.sum())
    if present and present - int(junk.sum()) >= NUMERIC_SHARE * present:
        return Column(name, "number", np.array([np.nan if n is None else n for n in numbers]), np.flatnonzero(junk))
    text = cells.copy()
    text[missing] = ""
    return Column(name, "category", text, none)


def _number(cell: str) -> float | None:
    """Return a cell's number; Python's `1_000` is none."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


# --- a table's features and target --------------------------------------------------------------


@dataclass(frozen=True)
class Schema:
    """A table as a model sees it, before anything is fitted.

    Attributes:
        table: Where the cells came from.
        features: The columns that are used, in order.
        target: The column to predict.
    """

    table: Table
    features: list[Column]
    target: Column


def schema_of(table: Table, target: str, ignore: list[str]) -> Schema:
    """Return a table's features and target, understood and checked.

    Raises:
        InputError: An ignored column does not exist, no feature is left, junk in a number column, an infinite
            number, a column without any value, or missing target values; with the rows.
    """
    unknown = [name for name in ignore if name not in table.columns]
    if unknown:
        columns = ", ".join(list(table.columns)[:12])
        raise InputError(
            f"{table.place} has no column {unknown[0]!r}", where="data.ignore", mend=f"name some of its columns: {columns}"
        )
    features = [understand(name, cells) for name, cells in table.columns.items() if name != target and name not in ignore]
    if not features:
        mend = "name fewer columns in data.ignore, or bring data with more of them"
        raise InputError(f"no feature is left beside the target {target!r}", where=table.place, mend=mend)
    wanted = understand(target, table.columns[target])
    for column in [*features, wanted]:
        _refuse_junk(table, column)
        _refuse_empty(table, column)
        _refuse_infinite(table, column)
    gone = np.flatnonzero(wanted.missing)
    if len(gone):
        raise InputError(
            f"{len(gone)} of {len(table)} rows have no value of the target {target!r}; lines {_lines(table, gone)}",
            where=table.where(int(gone[0])),
            mend="remove these rows, or fill in the target",
        )
    return Schema(table, features, wanted)


def _refuse_junk(table: Table, column: Column) -> None:
    if len(column.junk):
        row = int(column.junk[0])
        raise InputError(
            f"column {column.name!r} holds numbers, but {table.columns[column.name][row]!r} here; "
            f"{len(column.junk)} such cells in lines {_lines(table, column.junk)}",
            where=table.where(row),
            mend="mend these cells, leave them empty where the value is not known, or name the column in data.ignore",
        )


def _refuse_empty(table: Table, column: Column) -> None:
    if column.missing.all():
        what = f"column {column.name!r} has no value in any of {len(table)} rows"
        raise InputError(what, where=table.place, mend="name it in data.ignore")


def _refuse_infinite(table: Table, column: Column) -> None:
    if column.kind != "number":
        return
    bad = np.flatnonzero(np.abs(column.values) > np.finfo(np.float32).max)
    if len(bad):
        raise InputError(
            f"column {column.name!r} holds {column.values[bad[0]]}, which is not finite as float32; lines {_lines(table, bad)}",
            where=table.where(int(bad[0])),
            mend="mend these cells, or leave them empty where the value is not known",
        )


def _lines(table: Table, rows: np.ndarray) -> str:
    shown = ", ".join(str(table.rows[row]) for row in rows[:5])
    return shown + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")


def labels_of(schema: Schema) -> tuple[np.ndarray, list[str]]:
    """Return each row's class number, and the classes' names: whole numbers in numeric order, else sorted text.

    Raises:
        InputError: The target holds fractions, or one class only.
    """
    target = schema.target
    fractions = _fractions(target)
    if len(fractions):
        raise InputError(
            f"the target {target.name!r} holds {target.values[fractions[0]]}; a class was expected",
            where=schema.table.where(int(fractions[0])),
            mend="task: {kind: tabular_regression} predicts a quantity",
        )
    values, labels = np.unique(target.values, return_inverse=True)
    names = [str(int(v)) if target.kind == "number" else str(v) for v in values]
    if len(names) < 2:
        what = f"the target {target.name!r} has one class only: {names[0]!r} in all {len(labels)} rows"
        raise InputError(what, where=schema.table.place, mend=TWO_CLASSES)
    return labels.astype(np.int64), names


def _fractions(column: Column) -> np.ndarray:
    whole = column.kind == "category" or column.values == np.floor(column.values)
    return np.flatnonzero(np.logical_not(whole))


def quantities_of(schema: Schema) -> np.ndarray:
    """Return each row's value to predict, float64.

    Raises:
        InputError: The target is not a number.
    """
    if schema.target.kind != "number":
        raise InputError(
            f"the target {schema.target.name!r} holds {schema.target.values[0]!r}; a number was expected",
            where=schema.table.where(0),
            mend="task: {kind: tabular_classification} predicts a class",
        )
    return schema.target.values


# --- the matrix ---------------------------------------------------------------------------------


def vocabularies(schema: Schema, train: np.ndarray) -> dict[str, list[str]]:
    """Return the categories of each category column that occur in the training rows, sorted."""
    columns = [column for column in schema.features if column.kind == "category"]
    return {c.name: sorted({str(v) for v in c.values[train] if v != ""}) for c in columns}


def encode(schema: Schema, vocabulary: dict[str, list[str]], ids: np.ndarray) -> np.ndarray:
    """Return some rows as one float32 matrix [rows, columns].

    Numbers stay, NaN where missing; a category becomes its place in the vocabulary, -1 where missing or unseen.
    """
    matrix = np.empty((len(ids), len(schema.features)), dtype=np.float32)
    for place, column in enumerate(schema.features):
        values = column.values[ids]
        if column.kind == "category":
            codes = {text: float(code) for code, text in enumerate(vocabulary[column.name])}
            values = np.array([codes.get(str(text), UNKNOWN) for text in values], dtype=np.float32)
        matrix[:, place] = values
    return matrix
