"""Tables as a model's input: features and target, the rows that are used, and one matrix of numbers.

Kinds are read from all rows, as they are a table's form; everything that is learned - vocabularies, medians,
means - comes from the training split alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np

from mltrainer.checkpointing.inference_script import DATES, DAY
from mltrainer.configs.project import ColumnKind
from mltrainer.errors import InputError
from mltrainer.tasks.array_operations import distinct
from mltrainer.tasks.content import TWO_CLASSES, Table, require_columns
from mltrainer.tasks.tables.columns import Column, parse_column

Wrong = Literal["stop", "missing", "drop"]


@dataclass(frozen=True)
class Difference:
    """The days between two dates of a row, float64 with NaN where one is missing."""

    first: Column
    second: Column

    @property
    def values(self) -> np.ndarray:
        """The days from the first to the second."""
        days: np.ndarray = (self.second.values - self.first.values) / DAY
        return days


@dataclass(frozen=True)
class Schema:
    """A table as a model's input, before any fitting.

    Attributes:
        table: The table that the cells come from.
        features: The columns that are used, in order.
        differences: The days between each two of the dates among them.
        target: The column to predict; the first one of several.
        used_rows: The rows of the table that are used.
        wrong: Columns with wrong cells, and their lines, in a phrase each.
        notes: Sentences on rows that were left out.
        beside: The other columns to predict.
    """

    table: Table
    features: list[Column]
    differences: list[Difference]
    target: Column
    used_rows: np.ndarray
    wrong: list[str]
    notes: list[str]
    beside: list[Column] = field(default_factory=list)

    @property
    def targets(self) -> list[Column]:
        """The columns to predict."""
        return [self.target, *self.beside]

    def __len__(self) -> int:
        return len(self.used_rows)

    def where(self, row: int) -> str:
        """Return the place of one of the rows that are used, as `file:line`."""
        return self.table.where(int(self.used_rows[row]))


def schema_of(
    table: Table,
    target: str,
    ignore: list[str],
    kinds: Mapping[str, ColumnKind] | None = None,
    wrong: Wrong = "stop",
    known: Mapping[str, Column] | None = None,
    beside: Sequence[str] = (),
) -> Schema:
    """Return a table's features and target, parsed and checked; rows without a target are left out.

    Args:
        table: The cells.
        target: The column to predict.
        ignore: Columns that are no features.
        kinds: The kinds of some columns in `data.columns`.
        wrong: The treatment of cells that are not of their column's kind.
        known: Columns that were parsed already.
        beside: Other columns to predict.

    Raises:
        InputError: A column that is named does not exist, no feature is left, a column without any value, or a wrong cell
            where `wrong` is "stop"; with the rows.
    """
    kinds = kinds or {}
    require_columns(table, ignore, "data.ignore")
    require_columns(table, kinds, "data.columns")
    targets = [target, *beside]
    names = [name for name in table.columns if name not in targets and name not in ignore]
    if not names:
        hint = "name fewer columns in data.ignore, or bring data with more of them"
        raise InputError(f"no feature is left beside the target {target!r}", where=table.place, hint=hint)
    columns = [_parsed_column(table, name, kinds.get(name), known or {}) for name in [*names, *targets]]
    for column in columns:
        if wrong == "stop":
            _refuse_wrong(table, column, column.name in targets)
        _refuse_empty(table, column, column.name in targets)
    wrong_cells = [_wrong_cells(table, column) for column in columns if len(column.wrong)]
    # A row whose target cannot be read is always left out: there is nothing to learn from it.
    judged = columns if wrong == "drop" else columns[len(names) :]
    dropped = np.unique(np.concatenate([column.wrong for column in judged]))
    columns = [column.without_wrong() if len(column.wrong) else column for column in columns]
    kept, without = _used_rows(table, columns[len(names) :], dropped)
    lacks = ("lack a target", "lacks a target") if beside else ("have no target", "has no target")
    left_out = f"{len(without)} of {len(table)} rows {f'{lacks[1]} and is' if len(without) == 1 else f'{lacks[0]} and are'}"
    left_out += f" left out: {_lines(table, without)}"
    if len(kept) < len(table):
        columns = [column.take_rows(kept) for column in columns]
    features, (first, *others) = columns[: len(names)], columns[len(names) :]
    notes = [left_out] if len(without) else []
    return Schema(table, features, _differences(features), first, kept, wrong_cells, notes, others)


def _used_rows(table: Table, targets: list[Column], dropped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows that are used, and those that are left out because they lack a target.

    Raises:
        InputError: No row is left.
    """
    is_dropped = np.zeros(len(table), dtype=bool)
    is_dropped[dropped] = True
    missing = np.any([target.missing for target in targets], axis=0)
    without = np.flatnonzero(missing & ~is_dropped)
    kept = np.flatnonzero(~(missing | is_dropped))
    if not len(kept):
        hint = "data: {wrong_cells: missing} keeps more rows"
        raise InputError(f"no row is left of {len(table)}", where=table.place, hint=hint)
    return kept, without


def _parsed_column(table: Table, name: str, kind: ColumnKind | None, known: Mapping[str, Column]) -> Column:
    return known[name] if kind is None and name in known else column_of(table, name, kind)


def column_of(table: Table, name: str, kind: ColumnKind | None = None) -> Column:
    """Return a table's column, parsed now or by an earlier process."""
    if table.cache is not None:
        return table.cache.column(name, kind, lambda: table.columns[name])
    return parse_column(name, table.columns[name], kind)


def _differences(columns: list[Column]) -> list[Difference]:
    return [Difference(first, second) for first, second in combinations([c for c in columns if is_day(c)], 2)]


def is_day(column: Column) -> bool:
    """Return True if a column holds dates, and not times alone."""
    return column.kind in DATES and bool((column.values >= DAY).any() or (column.values < 0).any())


def _refuse_wrong(table: Table, column: Column, is_target: bool) -> None:
    if not len(column.wrong):
        return
    row, choice = int(column.wrong[0]), "or choose: data: {wrong_cells: missing} or {wrong_cells: drop}"
    value = column.values[row] if column.values.dtype == np.float64 else np.nan
    if not np.isnan(value):
        raise InputError(
            f"column {column.name!r} holds {value}, which is not finite as float32; {_lines(table, column.wrong)}",
            where=table.where(row),
            hint=f"fix these cells, leave them empty where the value is not known, {choice}",
        )
    leave, many = "" if is_target else "name the column in data.ignore, ", "s" if len(column.wrong) > 1 else ""
    raise InputError(
        f"column {column.name!r}, {len(column.wrong)} cell{many} in {_lines(table, column.wrong)}",
        expected=_PLURAL.get(column.kind, column.kind),
        found=repr(table.columns[column.name][row]),
        where=table.where(row),
        hint=f"fix these cells, leave them empty where the value is not known, {leave}{choice}",
    )


_PLURAL = {
    "number": "numbers",
    "formatted": "numbers",
    "decimal_comma": "numbers with a decimal comma",
    "boolean": "yes and no",
    "date": "dates",
    "date_day_first": "dates with the day first",
}


def _wrong_cells(table: Table, column: Column) -> str:
    count = f"{len(column.wrong)} of {len(table)} cells {'hold' if len(column.wrong) > 1 else 'holds'}"
    what = f"in column {column.name!r}, {count} no {_PLURAL.get(column.kind, column.kind)} that can be used"
    return f"{what} ({_lines(table, column.wrong)})"


def _refuse_empty(table: Table, column: Column, is_target: bool) -> None:
    if column.missing.all():
        what = f"column {column.name!r} has no value in any of {len(table)} rows"
        raise InputError(what, where=table.place, hint="predict another column" if is_target else "name it in data.ignore")


def _lines(table: Table, rows: np.ndarray) -> str:
    shown = ", ".join(table.line(int(row)) for row in rows[:5])
    return f"line{'s' if len(rows) > 1 else ''} {shown}" + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")


def labels_of(schema: Schema, target: Column | None = None) -> tuple[np.ndarray, list[str]]:
    """Return each row's class number, and the classes' names: whole numbers in numeric order, else sorted text.

    Args:
        schema: The table.
        target: The column; None for the schema's.

    Raises:
        InputError: The target holds fractions, or one class only.
    """
    target = schema.target if target is None else target
    fractions = _fractions(target)
    if len(fractions):
        raise InputError(
            f"the target {target.name!r}",
            expected="a class",
            found=target.values[fractions[0]],
            where=schema.where(int(fractions[0])),
            hint="task: {kind: tabular_regression} predicts a quantity",
        )
    values, labels = np.unique(target.values, return_inverse=True)
    names = _class_names(target, values)
    if len(names) < 2:
        what = f"the target {target.name!r} has one class only: {names[0]!r} in all {len(labels)} rows"
        raise InputError(what, where=schema.table.place, hint="; or ".join([TWO_CLASSES, *schema.table.notes]))
    return labels.astype(np.int64), names


def _class_names(target: Column, values: np.ndarray) -> list[str]:
    if target.kind == "boolean":
        return [("no", "yes")[int(value)] for value in values]
    return [str(int(value)) for value in values] if target.values.dtype == np.float64 else [target.texts[v] for v in values]


def _fractions(column: Column) -> np.ndarray:
    if column.values.dtype != np.float64:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.not_equal(column.values, np.floor(column.values)))


def quantities_of(schema: Schema) -> np.ndarray:
    """Return each row's value to predict, float64.

    Raises:
        InputError: The target is not a number.
    """
    if schema.target.values.dtype != np.float64:
        raise InputError(
            f"the target {schema.target.name!r}",
            expected="a number",
            found=schema.target.shown(0),
            where=schema.where(0),
            hint="task: {kind: tabular_classification} predicts a class",
        )
    return schema.target.values


# --- the matrix ---------------------------------------------------------------------------------


def vocabularies(schema: Schema, train: np.ndarray) -> dict[str, list[str]]:
    """Return the categories of each category column that occur in the training rows, sorted."""
    columns = [column for column in schema.features if column.kind == "category"]
    return {c.name: [c.texts[code] for code in distinct(c.values[train]) if code >= 0] for c in columns}


def encode(schema: Schema, vocabulary: dict[str, list[str]], ids: np.ndarray) -> np.ndarray:
    """Return some rows as one float32 matrix [rows, columns].

    Numbers stay, NaN where missing; a category becomes its place in the vocabulary, -1 where missing or unseen; a date and a
    text become several columns; the days between dates come last.
    """
    # Filled in place: parts that are joined at the end would be in memory twice.
    matrix = np.empty((len(ids), width_of(schema)), dtype=np.float32)
    place = 0
    for column in schema.features:
        matrix[:, place : place + column.width] = column.block(ids, vocabulary.get(column.name))
        place += column.width
    for difference in schema.differences:
        matrix[:, place] = difference.values[ids]
        place += 1
    return matrix


def width_of(schema: Schema) -> int:
    """Return the number of the matrix's columns."""
    return sum(column.width for column in schema.features) + len(schema.differences)


def places(schema: Schema) -> dict[str, int]:
    """Return the first place of each feature in the matrix."""
    starts = np.cumsum([0, *(column.width for column in schema.features)]).tolist()
    return {column.name: start for column, start in zip(schema.features, starts, strict=False)}
