"""Tables: what kind each column is, which task a target asks for, and one matrix of numbers for a model.

Kinds are read from all rows, as they are a table's form; everything that is learned - vocabularies, medians,
means - comes from the training split alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from mltrainer.configs.project import Data
from mltrainer.errors import InputError
from mltrainer.tasks.content import TWO_CLASSES, Arrays, Table
from mltrainer.tasks.sources import read_source, table_of

MISSING = frozenset({"", "NA", "NaN", "nan", "null", "None", "?"})
NUMERIC_SHARE = 0.9  # chosen by us: from this share of numbers on, text in a column is taken for a mistake, not for a category
MAX_CLASSES = 20  # chosen by us: whole numbers with more distinct values are taken for quantities
ID_ROWS = 20  # chosen by us: in fewer rows, distinct values prove nothing
UNKNOWN = -1.0
_ID_NAME = re.compile(r"(^|[_ .-])(id|uuid|guid|index|idx|row|rownum|nr|unnamed)([_ .-]|\d|$)|^column_\d+$", re.IGNORECASE)

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


# --- what a target asks for ---------------------------------------------------------------------


@dataclass(frozen=True)
class Inference:
    """What a data file asks for, with the reasons in sentences.

    Attributes:
        kind: The built-in task.
        metric: The metric that suits it.
        explanation: What was inferred, and from what.
        warnings: What a person should look at.
        ignored: Columns that look like ids, for `data.ignore`.
    """

    kind: str
    metric: str
    explanation: list[str]
    warnings: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def infer_project(path: Path, target: str | None) -> Inference:
    """Return what the data in a file and its target column ask for.

    Args:
        path: A table, arrays, or a folder of images.
        target: The column to predict; not needed for images and arrays.

    Raises:
        InputError: The file or the column does not exist, or its content is not valid.
    """
    content = read_source(Data(source=path.name), path.resolve().parent).content
    if isinstance(content, Arrays) and content.x.ndim == 4 and content.classes is not None:
        shape = list(content.x.shape[1:])
        what = f"{len(content)} images of shape {shape} in {len(content.classes)} classes: image_classification"
        return Inference("image_classification", "accuracy", [what])
    table, name = table_of(content, target)
    return infer_table(table, name)


def infer_table(table: Table, target: str) -> Inference:
    """Return what a table's target column asks for.

    Raises:
        InputError: A column's content is not valid.
    """
    ids = {name: why for name in table.columns if name != target and (why := _id_reason(understand(name, table.columns[name])))}
    schema = schema_of(table, target, list(ids))
    kind, sentence = _kind(schema.target)
    numbers = sum(c.kind == "number" for c in schema.features)
    shape = f"{len(table)} rows; {numbers} number and {len(schema.features) - numbers} category columns predict {target!r}"
    explanation = [shape, sentence, *(f"column {name!r} is ignored: {why}" for name, why in ids.items())]
    metric, warnings = ("r2", []) if kind == "tabular_regression" else _classes(schema)
    return Inference(kind, metric, explanation, [*warnings, *_constant(schema), *_gaps(schema)], list(ids))


def _kind(target: Column) -> tuple[str, str]:
    every = np.arange(len(target.values))
    distinct = target.distinct(every)
    if target.kind == "category":
        return "tabular_classification", f"{target.name!r} holds text with {distinct} distinct values: tabular_classification"
    whole = bool((target.values == np.floor(target.values)).all())
    if whole and distinct <= MAX_CLASSES:
        return "tabular_classification", f"{target.name!r} holds {distinct} distinct whole numbers: tabular_classification"
    what = "whole numbers" if whole else "numbers with fractions"
    return "tabular_regression", f"{target.name!r} holds {what} with {distinct} distinct values: tabular_regression"


def _classes(schema: Schema) -> tuple[str, list[str]]:
    """Return the metric for a classification, and a warning where the classes are far from balanced."""
    labels, names = labels_of(schema)
    counts = np.bincount(labels)
    rare = [f"{names[nr]} has {counts[nr]} rows" for nr in np.flatnonzero(counts < 3)]
    warnings = [f"too few rows for every split: {', '.join(rare[:5])}"] if rare else []
    if counts.max() <= 10 * counts.min():
        return "accuracy", warnings
    most, least = int(counts.argmax()), int(counts.argmin())
    text = f"classes are imbalanced: {names[most]} has {counts[most]} rows, {names[least]} {counts[least]}"
    return "f1_macro", [f"{text}; f1_macro weighs all classes equally", *warnings]


def _id_reason(column: Column) -> str | None:
    """Return why a column looks like an id or free text, or None."""
    present = column.values[~column.missing]
    n, distinct = len(present), len(np.unique(present))
    if n < ID_ROWS:
        return None
    if column.kind == "category":
        loose = distinct > max(50, n / 2) or distinct == n
        return f"{distinct} distinct texts in {n} rows, an id or free text" if loose else None
    if distinct < n or (present != np.floor(present)).any():
        return None
    consecutive = present.max() - present.min() == n - 1
    return "every row has a whole number of its own, an id" if consecutive or _ID_NAME.search(column.name) else None


def _constant(schema: Schema) -> list[str]:
    every = np.arange(len(schema.table))
    return [f"column {c.name!r} has one value only" for c in schema.features if c.distinct(every) == 1 and not c.missing.any()]


def _gaps(schema: Schema) -> list[str]:
    gaps = [(c.name, float(c.missing.mean())) for c in schema.features]
    return [f"column {name!r} is missing in {share:.0%} of the rows" for name, share in gaps if share > 0.5]
