"""Columns that define the split of rows, by names, folds, groups or time, and the constraints that follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mltrainer.checkpointing.inference_script import as_boolean
from mltrainer.configs.project import ColumnKind, Data, Split
from mltrainer.errors import InputError
from mltrainer.tasks.content import Table, require_columns
from mltrainer.tasks.splits import SPLITS, WORDS, SplitConstraints, equal_rows
from mltrainer.tasks.tables.ambiguities import as_key
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.schema import Schema, column_of

MEANT = {word: name for name, words in WORDS.items() for word in words}
OTHER = {"train": "test", "validation": "train", "test": "train"}  # the split of rows that are not in this one
IN_SPLIT = re.compile(rf"(?:(?P<sure>is|in)[_ .-]?)?(?P<split>{'|'.join(MEANT)})(?:[_ .-]?set)?", re.IGNORECASE)
FOLDS = re.compile(r"(?:cv|k)?[_ .-]?folds?(?:[_ .-]?(?:id|nr|no|number))?", re.IGNORECASE)
MOST_FOLDS = 20  # chosen by us: cross-validation has 5 or 10, seldom 20


@dataclass(frozen=True)
class SplitColumn:
    """A column by which rows are split.

    Attributes:
        name: The column's name.
        key: The key of `split` for it.
        why: The reason, in a sentence; a question where it is unsure.
        is_sure: Whether it cannot be a feature as well.
    """

    name: str
    key: str
    why: str
    is_sure: bool = True


def place_of(column: str, cell: str) -> int:
    """Return the place in `SPLITS` of the split that a column's cell names; -1 for none."""
    if cell.lower() in MEANT:
        return SPLITS.index(MEANT[cell.lower()])
    named, answer = IN_SPLIT.fullmatch(column), as_boolean(cell)
    if named is None or answer is None:
        return -1
    meant = MEANT[named["split"].lower()]
    return SPLITS.index(meant if answer else OTHER[meant])


def split_column(columns: Mapping[str, Column], target: str) -> SplitColumn | None:
    """Return the first column that defines the split of rows, or None.

    Args:
        columns: The columns as inferred from their cells alone.
        target: The column to predict, which is left out.
    """
    found = (_splits(column) or _folds(column) for name, column in columns.items() if name != target)
    return next(filter(None, found), None)


def _splits(column: Column) -> SplitColumn | None:
    texts = _texts(column) if len(column.texts) <= len(MEANT) else []
    places = {place_of(column.name, text) for text in texts}
    if column.missing.any() or -1 in places or 0 not in places or len(places) < 2:
        return None
    shown, key = ", ".join(map(repr, texts)), as_key(column.name)
    named = IN_SPLIT.fullmatch(column.name)
    if named and not named["sure"] and texts[0].lower() not in MEANT:  # a test may be one of blood, and a train a means of travel
        why = f"does column {column.name!r} say how rows are split? split: {{column: {key}}} follows it"
        return SplitColumn(column.name, "column", f"{why}, and takes it out of the features", is_sure=False)
    why = f"column {column.name!r} says how rows are split ({shown}), and is no feature: split: {{column: {key}}}"
    drawn = [SPLITS[place] for place in (1, 2) if place not in places]
    return SplitColumn(column.name, "column", f"{why}; {drawn[0]} rows are drawn from those to train on" if drawn else why)


def _folds(column: Column) -> SplitColumn | None:
    if not FOLDS.fullmatch(column.name) or column.kind != "number" or column.missing.any():
        return None
    numbers = np.unique(column.values)
    if not 3 <= len(numbers) <= MOST_FOLDS or np.ptp(numbers) != len(numbers) - 1:
        return None
    why = f"column {column.name!r} numbers {len(numbers)} folds, and is no feature: split: {{group: {as_key(column.name)}}}"
    return SplitColumn(column.name, "group", f"{why} keeps the rows of one fold in one split")


def _texts(column: Column) -> list[str]:
    """Return the distinct cells of a column; of a column of numbers only 0 and 1, else none."""
    if column.kind != "number":
        return column.texts
    numbers = np.unique(column.values)
    return [str(int(number)) for number in numbers] if set(numbers.tolist()) <= {0.0, 1.0} else []


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


def of_columns(rows: Rows, split: Split, keys: Callable[[], np.ndarray], data: Data) -> SplitConstraints:
    """Return the constraints by the split's columns, or of equal rows.

    Args:
        rows: The table's rows.
        split: The config's split, with the columns.
        keys: Returns a hash of each row's features.
        data: The config's data, with the kinds of columns.

    Raises:
        InputError: There is no such column, or its cells are not valid.
    """
    if split.column is not None:
        given = _named_splits(rows, _column(rows, split.column, "split.column", "category"))
        return replace(equal_rows(split, keys), given=given)
    if split.time is not None:
        return SplitConstraints(times=_times(rows, split.time, data.columns.get(split.time)))
    if split.group is not None:
        column = _column(rows, split.group, "split.group", "category")
        alone = np.arange(len(rows)) + len(column.texts)  # a row without a group is one by itself
        return SplitConstraints(units=np.where(column.missing, alone, column.values))
    return equal_rows(split, keys)


def _column(rows: Rows, name: str, key: str, kind: ColumnKind | None) -> Column:
    require_columns(rows.table, [name], key)
    return column_of(rows.table, name, kind).take_rows(rows.used)


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


def _named_splits(rows: Rows, column: Column) -> np.ndarray:
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
