"""The config for a table and its target: task, metric, columns to leave out; with reasons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mltrainer.checkpointing.inference_script import DATES, FORMATS, PARSERS, as_number, as_seconds, unit_of
from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import STOPS, ColumnKind
from mltrainer.errors import InputError
from mltrainer.tasks.array_operations import row_hashes
from mltrainer.tasks.content import Table
from mltrainer.tasks.data_findings import LARGEST_REPEAT, Finding, few_rows, label_findings, rare_classes, suited_metric
from mltrainer.tasks.splits import FEW_COPIES
from mltrainer.tasks.tables.ambiguities import OTHER_READING, ambiguities, as_key
from mltrainer.tasks.tables.columns import NUMERIC_SHARE, Column, main_unit, name_among, parse_column
from mltrainer.tasks.tables.hints import ROWS_OF_ONE, agreement, amounts_hint, heavy_tail, is_named_as_id, names_hint, table_hints
from mltrainer.tasks.tables.leakage import Answers, Target, leakage_findings
from mltrainer.tasks.tables.schema import Schema, labels_of, schema_of, width_of
from mltrainer.tasks.tables.sentinels import sentinels, together

MAX_CLASSES = 20  # chosen by us: whole numbers with more distinct values are taken for quantities
LEAST_FOR_R2 = 9  # with fewer rows, the validating fifth is a single row
LOOKED_AT = 2000  # distinct texts of a column that are tried
WORDY = 3  # chosen by us: the least mean number of words a cell of texts that are not names
FEW = 50  # chosen by us: distinct texts that are categories still
MANY_CATEGORIES = 100  # chosen by us: with more distinct texts, most of them are rare
LEAST_PRESENT = 5  # chosen by us: with fewer values in a column, the training rows may have none
ID_ROWS = 20  # chosen by us: in fewer rows, distinct values prove nothing
CODE = re.compile(r"\D*0\d+\D*")  # a whole number with zeros in front, with or without letters, as no amount is written
_MOMENT = re.compile(r"time|date|year|month|week|day|hour|minute|second|epoch|period|quarter|(^|_)ts$", re.IGNORECASE)
EVENLY = 0.99  # chosen by us: the least correlation with the row number of numbers that grow evenly
UNRELATED = 0.01  # chosen by us: the probability by chance of as strong a relation to the target


@dataclass(frozen=True)
class InferredConfig:
    """The config for a data file, with the reasons in sentences.

    Attributes:
        kind: The built-in task.
        metric: The metric that suits it.
        explanation: Sentences on the inferences and their grounds.
        warnings: Sentences on points for a person to check.
        ignored: Columns that look like ids or are empty, for `data.ignore`.
        columns: Kinds that differ from those inferred from cells alone, for `data.columns`.
        missing: Spellings of a missing value, for `data.missing`.
        reading: The table's place in its file, as keys of `data`.
        has_wrong_cells: Whether there are cells for `data.wrong_cells` to decide on.
        text: The column of texts, for `data.text`.
        rows: Number of samples.
        width: Number of columns of a table's matrix.
        doubted: A sentence on each number that may mean a missing value; among the warnings too.
        split: The column by which rows are split, as keys of `split`; empty where rows are drawn.
    """

    kind: str
    metric: str
    explanation: list[str]
    warnings: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    text: str | None = None
    columns: dict[str, ColumnKind] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    reading: Mapping[str, object] = field(default_factory=dict)
    has_wrong_cells: bool = False
    rows: int = 0
    width: int = 0
    doubted: list[str] = field(default_factory=list)
    split: dict[str, str] = field(default_factory=dict)


def infer_table(table: Table, target: str, plain: Mapping[str, Column], split_by: str | None = None) -> InferredConfig:
    """Return the task, metric and column kinds inferred from a table and its target column.

    Args:
        table: The cells.
        target: The column to predict.
        plain: The columns as inferred from their cells alone.
        split_by: The column, removed from the table, by which rows are split.

    Raises:
        InputError: A column's content is not valid.
    """
    read, kinds, ids = columns = _columns(table, target, plain)
    # "missing", so that wrong cells stop nothing here: each becomes a warning, and planning asks for a decision.
    schema = schema_of(table, target, list(ids), kinds, "missing", read)
    task, what = task_of(schema.target)
    metric, warnings = _quantity(schema) if task == "tabular_regression" else _classes(schema)
    left_out = [read[name].take_rows(schema.used_rows) for name in ids]
    group, agrees = _group(schema, left_out)
    if group is not None and group not in ids:
        ids[group] = "an id, of which several rows are"
        kinds.pop(group, None)
        schema = schema_of(table, target, list(ids), kinds, "missing", read)
    explanation = [
        *_explained(schema, what, task, columns),
        *([f"rows with one {group!r} go to one split (split.group): {agrees}"] if group and not split_by else []),
    ]
    doubted = _doubted(table, schema, target)
    warnings += [
        *(f"{what}: {STOPS} until data.wrong_cells says missing or drop" for what in schema.wrong),
        *([f"rows with one {group!r} may be in several splits of {split_by!r}: {agrees}"] if group and split_by else []),
        *few_rows(len(schema)),
        *schema.notes,
        *_constant(schema),
        *_giant_repeat(schema),
        *table_hints(schema, by_group=group is not None, left_out=left_out),
        *doubted,
        *(text for column in read.values() for text in ambiguities(column, kinds.get(column.name))),
        *_leaks(schema, task, list(ids)),
    ]
    return InferredConfig(
        task,
        metric,
        explanation,
        warnings,
        list(ids),
        columns=kinds,
        has_wrong_cells=bool(schema.wrong),
        rows=len(schema),
        width=width_of(schema),
        doubted=doubted,
        split={"group": group} if group and not split_by else {},
    )


def _explained(schema: Schema, what: str, task: str, columns: _Columns) -> list[str]:
    """Return sentences on the table's shape, the task, and each column that is taken for something else or ignored."""
    return [
        _shape(schema),
        f"{what}: {task}",
        *(names_hint if task == "tabular_regression" else amounts_hint)(schema.target),
        *(f"column {name!r} is taken for {DESCRIBED[kind]}{_why(columns.read[name])}" for name, kind in columns.kinds.items()),
        *(f"column {name!r} is ignored: {why}" for name, why in columns.without_use.items()),
    ]


def _doubted(table: Table, schema: Schema, target: str) -> list[str]:
    """Return warnings of values of the table that may mean missing ones."""
    columns = [*schema.features, schema.target]
    found = together(sentinels(table, columns, schema.used_rows, np.arange(len(schema))), [schema.target.name])
    return [_planned(one.finding({target}, {})) for one in found]


def _group(schema: Schema, left_out: list[Column]) -> tuple[str | None, str]:
    """Return the column of ids whose rows belong together beyond doubt, with the evidence; None where there is none.

    Where rows of several ids are equal, it is none: equal rows are bound in place of the ids.
    """
    others = [*schema.features, *schema.targets]
    named = [column for column in [*left_out, *schema.features] if is_named_as_id(column.name)]
    found = {c.name: agreement(c, [other for other in others if other is not c]) for c in named if _is_of_few_rows(c)}
    clear = {name: one for name, one in found.items() if one is not None}
    if not clear or len(schema.features) < 2:
        return None, ""
    name = max(clear, key=lambda each: clear[each].pairs)
    ids = next(column for column in named if column.name == name)
    features = row_hashes([column.values for column in schema.features if column is not ids])
    if len(np.unique(row_hashes([features, ids.values]))) - len(np.unique(features)) > DataLimits().leak_rows * len(schema):
        return None, ""
    return name, str(clear[name])


def _is_of_few_rows(column: Column) -> bool:
    """Return True if a column has few rows for each name: with more, new rows may well have the same names, such as shops."""
    present = int((~column.missing).sum())
    return present <= ROWS_OF_ONE * column.distinct(np.arange(len(column.values)))


class _Columns(NamedTuple):
    """A table's columns, by name: as they are read, the kinds of the used ones, and the reasons for leaving out the others."""

    read: Mapping[str, Column]
    kinds: dict[str, ColumnKind]
    without_use: dict[str, str]


def _columns(table: Table, target: str, plain: Mapping[str, Column]) -> _Columns:
    """Return a table's columns, those of codes as categories.

    Raises:
        InputError: No column is left that could predict the target.
    """
    codes: dict[str, ColumnKind] = {name: _category_of(column) for name, column in plain.items() if _code_in(column)}
    kinds = codes | {n: kind for n, c in plain.items() if n not in codes and (kind := kind_of(c, table)) is not None}
    features = [column for name, column in plain.items() if name != target]
    ids = _without_use(features, [name for name in kinds if name not in codes], plain[target])
    if features and len(ids) == len(features):
        what = f"no column is left that could predict {target!r}: {'; '.join(f'{name!r}: {why}' for name, why in ids.items())}"
        raise InputError(what, where=table.place, hint="bring columns that predict the target")
    return _Columns(plain, {name: kind for name, kind in kinds.items() if name not in ids}, ids)


def _without_use(features: list[Column], known: list[str], target: Column) -> dict[str, str]:
    """Return the reasons that columns are no features, by name: they are empty, or ids; `known` ones are no ids."""
    reasons = {
        c.name: _nothing_in(c) or (None if c.name in known else id_reason(c) or _running_number(c, target)) for c in features
    }
    return {name: why for name, why in reasons.items() if why}


DESCRIBED: dict[str, str] = {
    "number": "numbers",
    "formatted": "numbers with thousands separators, currencies, percent signs or a unit",
    "decimal_comma": "numbers with a decimal comma",
    "boolean": "yes and no in several spellings",
    "category": "categories",
    "hashed": "many categories, hashed into 256 buckets",
    "date": "dates",
    "date_day_first": "dates with the day before the month",
    "text": "text, as counts of its words",
}


def _shape(schema: Schema) -> str:
    numbers = sum(column.kind == "number" for column in schema.features)
    categories = sum(column.kind == "category" for column in schema.features)
    others = len(schema.features) - numbers - categories
    more = f", and {others} others" if others else ""
    return f"{len(schema)} rows; {numbers} number and {categories} category columns{more} predict {schema.target.name!r}"


def kind_of(column: Column, table: Table) -> ColumnKind | None:
    """Return the kind of a column's cells, or None where they are plain numbers or a few categories.

    Args:
        column: The column as inferred from its cells alone.
        table: The table with the cells.
    """
    if column.kind == "number":
        if not len(column.wrong):
            return "date" if _are_days(column) else None
        kinds: tuple[ColumnKind, ...] = ("formatted", "decimal_comma")
        wrong = {kind: len(parse_column(column.name, table.columns[column.name], kind).wrong) for kind in kinds}
        best = min(kinds, key=lambda kind: wrong[kind])
        return best if wrong[best] < len(column.wrong) else None
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.texts))
    if not len(counts):
        return None
    # Evenly spaced, as the texts are sorted: the first ones alone may all begin with a digit.
    looked = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), LOOKED_AT)).astype(np.int64))
    some, weights = [column.texts[nr] for nr in looked], counts[looked]
    dates: tuple[ColumnKind, ...] = ("boolean", "date", "date_day_first")
    # An amount has no zero before its first digit, as SKU0007 has, whose letters look like a currency's.
    are_codes = any(CODE.fullmatch(text) for text in some)
    read_as: tuple[ColumnKind, ...] = dates if are_codes else (*dates, "formatted", "decimal_comma")
    read = {kind: _read_as(kind, some, weights) for kind in read_as}
    for kind in read_as:
        # Yes and no in two spellings are two categories already: this kind is for more spellings, and allows no other text.
        needed = 1 if kind == "boolean" else NUMERIC_SHARE
        # "1.234" may be either form: the one that reads more of the column's cells is meant.
        is_best = read[OTHER_READING.get(kind, kind)] <= read[kind]
        if read[kind] >= needed * weights.sum() and (kind != "boolean" or len(counts) > 2) and is_best:
            return kind
    words = np.array([words_in(text) for text in some])
    if (weights @ words) >= WORDY * weights.sum() and len(counts) > FEW:
        return "text"
    return "hashed" if _category_of(column) == "hashed" else None


def words_in(text: str) -> int:
    """Return the number of a text's parts between blanks that have a letter: a telephone number has none."""
    return sum(any(map(str.isalpha, part)) for part in text.split())


def _are_days(column: Column) -> bool:
    """Return True if all numbers are days written as 20050131."""
    days = np.unique(column.values[~column.missing])
    return len(days) > 1 and bool((days == np.floor(days)).all()) and all(as_seconds(str(int(day))) is not None for day in days)


def _read_as(kind: ColumnKind, texts: list[str], weights: np.ndarray) -> int:
    """Return the number of cells that a kind reads, counting only the most frequent unit."""
    is_read = np.array([PARSERS[kind](text) is not None for text in texts])
    if kind in FORMATS:
        units = np.array([unit_of(text, FORMATS[kind]) for text in texts])
        is_read &= (units == "") | (units == main_unit(np.repeat(units, weights)))
    return int(weights @ is_read)


def _category_of(column: Column) -> ColumnKind:
    many = len(column.texts) > MANY_CATEGORIES and len(column.values) >= 2 * len(column.texts)
    return "hashed" if many else "category"


def _code_in(column: Column) -> str | None:
    """Return a cell of a column of whole numbers that are names, such as 01234, or None."""
    if column.kind != "category" or not column.texts:
        return None
    are_numbers = sum(as_number(text) is not None for text in column.texts) >= NUMERIC_SHARE * len(column.texts)
    return name_among(np.array(column.texts, dtype=object)) if are_numbers else None


def _why(column: Column) -> str:
    """Return the reason for taking numbers for names, and the setting for quantities."""
    code = _code_in(column)
    if code is None:
        return ""
    quantity = f"where it is a quantity, write data: {{columns: {{{as_key(column.name)}: number}}}}"
    return f": {code!r} would not be the same as a number; {quantity}"


def _nothing_in(column: Column) -> str | None:
    present = int((~column.missing).sum())
    if present >= min(LEAST_PRESENT, len(column.values)):
        return None
    return f"it has {f'a value in only {present}' if present else 'no value in any'} of {len(column.values)} rows"


def _giant_repeat(schema: Schema) -> list[str]:
    """Return a question on the row with the most copies, with their number, where these would fill a split."""
    keys, counts = np.unique(row_hashes([column.values for column in schema.features]), return_counts=True)
    most = int(counts.max())
    if most <= max(FEW_COPIES, LARGEST_REPEAT * len(schema)) or len(keys) < FEW_COPIES:
        return []
    return [f"one row's features occur {most} times in {len(schema)} rows: are its copies samples of their own, or one?"]


def task_of(target: Column) -> tuple[str, str]:
    """Return the task that predicts a column, and a sentence on its values."""
    every = np.arange(len(target.values))
    distinct = target.distinct(every)
    if target.kind == "category":
        return "tabular_classification", f"{target.name!r} holds text with {distinct} distinct values"
    if target.kind == "boolean":
        return "tabular_classification", f"{target.name!r} holds yes and no in several spellings"
    if target.kind in DATES:
        return "tabular_regression", f"{target.name!r} holds dates, predicted as seconds since 1970"
    whole = bool((target.values == np.floor(target.values)).all())
    if whole and distinct <= MAX_CLASSES:
        return "tabular_classification", f"{target.name!r} holds {distinct} distinct whole numbers"
    what = "whole numbers" if whole else "numbers with fractions"
    return "tabular_regression", f"{target.name!r} holds {what} with {distinct} distinct values"


def _classes(schema: Schema) -> tuple[str, list[str]]:
    """Return the metric for a classification, and a warning where the classes are far from balanced."""
    labels, names = labels_of(schema)
    counts = np.bincount(labels)
    metric, warnings = suited_metric(names, counts)
    return metric, [*warnings, *rare_classes(names, counts), *_labels(schema)]


def _labels(schema: Schema) -> list[str]:
    """Return the labels of files for validation and test that the training file lacks."""
    later = schema.table.later
    if not later:
        return []
    labels, names = labels_of(schema)
    file = np.searchsorted([first for first, _ in later], schema.used_rows, side="right")
    held_out = {repr(name): np.flatnonzero(file == place) for place, (_, name) in enumerate(later, 1)}
    return list(map(_planned, label_findings(names, labels, np.flatnonzero(file == 0), held_out)))


def _quantity(schema: Schema) -> tuple[str, list[str]]:
    """Return the metric for a regression: where few rows hold most of the variance, one that does not depend on them alone."""
    heavy = heavy_tail(schema.target.name, schema.target.values, "mae")
    one = [f"{len(schema)} rows leave one to validate on, where r2 is not defined; {STOPS}: bring {LEAST_FOR_R2} rows or more"]
    return "mae" if heavy else "r2", [*heavy, *(one if len(schema) < LEAST_FOR_R2 else [])]


def _leaks(schema: Schema, task: str, ignored: list[str]) -> list[str]:
    """Return warnings on columns that leak the target; planning, on the training rows alone, stops at sure leakage."""
    labels, names = (None, []) if task == "tabular_regression" else labels_of(schema)
    rows = np.arange(len(schema))
    target = Target(schema.target, labels, names)
    found = leakage_findings(schema.features, target, rows, DataLimits(), Answers(ignored))
    return list(map(_planned, found))


def _planned(found: Finding) -> str:
    """Return a finding as a sentence of `init`, with its consequence in planning."""
    return f"{found.what}{f'; {STOPS}' if found.severity == 'error' else ''}"


def id_reason(column: Column) -> str | None:
    """Return the reason that a column looks like an id or free text, or None."""
    present = column.values[~column.missing]
    n = len(present)
    if n < ID_ROWS:
        return None
    if column.kind == "category":
        distinct = len(column.texts)
        loose = distinct > max(50, n / 2) or distinct == n
        return f"{distinct} distinct texts in {n} rows, an id or free text" if loose else None
    distinct = len(np.unique(present))
    if (present != np.floor(present)).any() or 2 * distinct <= n:
        return None
    if distinct < n:
        return f"{distinct} distinct whole numbers in {n} rows, an id" if is_named_as_id(column.name) else None
    consecutive = present.max() - present.min() == n - 1
    is_named = is_named_as_id(column.name) or re.fullmatch(r"column_\d+", column.name)
    return "every row has a whole number of its own, an id" if consecutive or is_named else None


def _running_number(column: Column, target: Column) -> str | None:
    """Return the reason that whole numbers only count the rows, or None: they grow evenly, and the target does not."""
    values = column.values
    is_running = column.kind == "number" and not column.missing.any() and (np.diff(values) > 0).all()
    if not is_running or len(values) < ID_ROWS or (values != np.floor(values)).any() or _MOMENT.search(column.name):
        return None
    from scipy.stats import kruskal, spearmanr

    places, known = np.arange(len(values)), ~target.missing
    if np.corrcoef(values, places)[0, 1] < EVENLY:
        return None
    places, answers = places[known], target.values[known]
    if task_of(target)[0] == "tabular_regression":
        chance = spearmanr(places, answers).pvalue
    else:
        groups = [places[answers == label] for label in np.unique(answers)]
        chance = kruskal(*groups).pvalue if len(groups) > 1 else 0.0
    return "it only counts the rows: it grows evenly from row to row, and the target does not" if chance > UNRELATED else None


def _constant(schema: Schema) -> list[str]:
    same = [c for c in schema.features if not c.missing.any() and (c.values[0] == c.values).all()]
    return [f"column {c.name!r} has one value only" for c in same]
