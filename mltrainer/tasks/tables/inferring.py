"""What a data file and its target ask for: task, metric, columns to leave out; with the reasons in sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mltrainer.checkpointing.inference_script import DATES, PARSERS
from mltrainer.configs.project import ColumnKind, Data
from mltrainer.tasks.content import Arrays, Corpus, Table
from mltrainer.tasks.sources import read_source, table_of
from mltrainer.tasks.tables.columns import NUMERIC_SHARE, Column, understand
from mltrainer.tasks.tables.schema import Schema, labels_of, schema_of, width_of
from mltrainer.tasks.validation import suited_metric

MAX_CLASSES = 20  # chosen by us: whole numbers with more distinct values are taken for quantities
LOOKED_AT = 2000  # distinct texts of a column that are tried
WORDY = 3  # chosen by us: from so many words a cell on, texts are not names
FEW = 50  # chosen by us: distinct texts that are categories still
MANY_CATEGORIES = 100  # chosen by us: with more distinct texts, most of them are rare
GENERATED = 128  # characters of a sample of text to generate, by default
ID_ROWS = 20  # chosen by us: in fewer rows, distinct values prove nothing
_ID_NAME = re.compile(r"(^|[_ .-])(id|uuid|guid|index|idx|row|rownum|nr|unnamed)([_ .-]|\d|$)|^column_\d+$", re.IGNORECASE)


@dataclass(frozen=True)
class Inference:
    """What a data file asks for, with the reasons in sentences.

    Attributes:
        kind: The built-in task.
        metric: The metric that suits it.
        explanation: What was inferred, and from what.
        warnings: What a person should look at.
        ignored: Columns that look like ids or hold nothing, for `data.ignore`.
        columns: Kinds that the cells alone would not give, for `data.columns`.
        has_wrong_cells: Whether `data.wrong_cells` has something to decide.
        text: The column of texts, for `data.text`.
        rows: How many samples there are.
        width: Columns of the matrix that a table becomes.
    """

    kind: str
    metric: str
    explanation: list[str]
    warnings: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    text: str | None = None
    columns: dict[str, ColumnKind] = field(default_factory=dict)
    has_wrong_cells: bool = False
    rows: int = 0
    width: int = 0


def infer_project(paths: Mapping[str, Path], target: str | None) -> Inference:
    """Return what data and its target column ask for.

    Args:
        paths: A table, arrays, a text or a folder of images, as "train"; "validation" and "test" where they are of their own.
        target: The column to predict; not needed for images and arrays.

    Raises:
        InputError: The file or the column does not exist, or its content is not valid.
    """
    root = paths["train"].resolve().parent
    train, *held_out = (os.path.relpath(path.resolve(), root) for path in paths.values())
    data = Data.model_validate({"source": train, **dict(zip([*paths][1:], held_out, strict=True))})
    content = read_source(data, root).content
    if isinstance(content, Corpus):
        what = f"{sum(content.sizes)} bytes of text in {len(content.paths)} files: text_generation"
        return Inference("text_generation", "bits_per_byte", [what], rows=sum(content.sizes) // GENERATED)
    if isinstance(content, Arrays) and content.x.ndim == 4 and content.classes is not None:
        shape = list(content.x.shape[1:])
        what = f"{len(content)} images of shape {shape} in {len(content.classes)} classes: image_classification"
        return Inference("image_classification", "accuracy", [what])
    from mltrainer.tasks.text.inferring import infer_texts
    from mltrainer.tasks.text.reading import folder_target

    table, name = table_of(content, target or folder_target(content))
    plain = plain_columns(table)
    return infer_texts(table, name, plain) or infer_table(table, name, plain)


def plain_columns(table: Table) -> dict[str, Column]:
    """Return a table's columns as their cells alone are understood."""
    return {name: understand(name, cells) for name, cells in table.columns.items()}


def infer_table(table: Table, target: str, plain: Mapping[str, Column]) -> Inference:
    """Return what a table's target column asks for.

    Args:
        table: The cells.
        target: The column to predict.
        plain: The columns as their cells alone were understood.

    Raises:
        InputError: A column's content is not valid.
    """
    kinds = {name: kind for name, column in plain.items() if (kind := kind_of(column, table)) is not None}
    features = {name: column for name, column in plain.items() if name != target}
    reasons = {name: _nothing_in(c) or (None if name in kinds else id_reason(c)) for name, c in features.items()}
    ids = {name: why for name, why in reasons.items() if why}
    kinds = {name: kind for name, kind in kinds.items() if name not in ids}
    schema = schema_of(table, target, list(ids), kinds, "missing", plain)
    task, sentence = _kind(schema.target)
    metric, warnings = ("r2", []) if task == "tabular_regression" else _classes(schema)
    explanation = [
        _shape(schema),
        sentence,
        *(f"column {name!r} is taken for {DESCRIBED[kind]}" for name, kind in kinds.items()),
        *(f"column {name!r} is ignored: {why}" for name, why in ids.items()),
    ]
    asked = [f"{what}: planning stops there until data.wrong_cells says missing or drop" for what in schema.wrong]
    warnings = [*warnings, *asked, *schema.notes, *_constant(schema), *_gaps(schema), *_moments(schema)]
    return Inference(
        task,
        metric,
        explanation,
        warnings,
        list(ids),
        columns=kinds,
        has_wrong_cells=bool(asked),
        rows=len(schema),
        width=width_of(schema),
    )


DESCRIBED: dict[str, str] = {
    "number": "numbers",
    "formatted": "numbers with thousands separators, currencies or percent signs",
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
    """Return what a column's cells look like, or None where they are plain numbers or a few categories.

    Args:
        column: As its cells alone were understood.
        table: Holds the cells.
    """
    if column.kind == "number":
        if not len(column.wrong):
            return None
        again = understand(column.name, table.columns[column.name], "formatted")
        return "formatted" if len(again.wrong) < len(column.wrong) else None
    counts = np.bincount(column.values[column.values >= 0], minlength=len(column.texts))
    if not len(counts):
        return None
    looked = np.unique(np.linspace(0, len(counts) - 1, min(len(counts), LOOKED_AT)).astype(np.int64))
    some, weights = [column.texts[nr] for nr in looked], counts[looked]
    for kind in ("boolean", "date", "date_day_first", "formatted", "decimal_comma"):
        read = np.array([PARSERS[kind](text) is not None for text in some], dtype=bool)
        needed = 1 if kind == "boolean" else NUMERIC_SHARE
        if (weights @ read) >= needed * weights.sum() and (kind != "boolean" or len(counts) > 2):
            return kind
    words = np.array([len(text.split()) for text in some])
    if (weights @ words) >= WORDY * weights.sum() and len(counts) > FEW:
        return "text"
    many = len(counts) > MANY_CATEGORIES and len(column.values) >= 2 * len(counts)
    return "hashed" if many else None


def _nothing_in(column: Column) -> str | None:
    return f"it has no value in any of {len(column.values)} rows" if column.missing.all() else None


def _moments(schema: Schema) -> list[str]:
    """Return how to split by time, where there are dates."""
    dates = [column.name for column in schema.features if column.kind in DATES]
    text = "is what you will predict later than what you have? split: {time: %s} trains on the past and tests on the future"
    return [text % dates[0]] if dates else []


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
    metric, told = suited_metric(names, counts)
    return metric, [*told, *warnings]


def id_reason(column: Column) -> str | None:
    """Return why a column looks like an id or free text, or None."""
    present = column.values[~column.missing]
    n = len(present)
    if n < ID_ROWS:
        return None
    if column.kind == "category":
        distinct = len(column.texts)
        loose = distinct > max(50, n / 2) or distinct == n
        return f"{distinct} distinct texts in {n} rows, an id or free text" if loose else None
    if (present != np.floor(present)).any() or len(np.unique(present)) < n:
        return None
    consecutive = present.max() - present.min() == n - 1
    return "every row has a whole number of its own, an id" if consecutive or _ID_NAME.search(column.name) else None


def _constant(schema: Schema) -> list[str]:
    same = [c for c in schema.features if not c.missing.any() and (c.values[0] == c.values).all()]
    return [f"column {c.name!r} has one value only" for c in same]


def _gaps(schema: Schema) -> list[str]:
    gaps = [(c.name, float(c.missing.mean())) for c in schema.features]
    return [f"column {name!r} is missing in {share:.0%} of the rows" for name, share in gaps if share > 0.5]
