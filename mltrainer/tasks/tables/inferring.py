"""What a data file and its target ask for: task, metric, columns to leave out; with the reasons in sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mltrainer.configs.project import Data
from mltrainer.tasks.content import Arrays, Table
from mltrainer.tasks.sources import read_source, table_of
from mltrainer.tasks.tables.schema import Column, Schema, labels_of, schema_of, understand

MAX_CLASSES = 20  # chosen by us: whole numbers with more distinct values are taken for quantities
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
        ignored: Columns that look like ids, for `data.ignore`.
        text: The column of texts, for `data.text`.
        rows: How many samples there are.
    """

    kind: str
    metric: str
    explanation: list[str]
    warnings: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    text: str | None = None
    rows: int = 0


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
    from mltrainer.tasks.text.inferring import infer_texts
    from mltrainer.tasks.text.reading import folder_target

    table, name = table_of(content, target or folder_target(content))
    return infer_texts(table, name) or infer_table(table, name)


def infer_table(table: Table, target: str) -> Inference:
    """Return what a table's target column asks for.

    Raises:
        InputError: A column's content is not valid.
    """
    ids = {name: why for name in table.columns if name != target and (why := id_reason(understand(name, table.columns[name])))}
    schema = schema_of(table, target, list(ids))
    kind, sentence = _kind(schema.target)
    numbers = sum(c.kind == "number" for c in schema.features)
    shape = f"{len(table)} rows; {numbers} number and {len(schema.features) - numbers} category columns predict {target!r}"
    explanation = [shape, sentence, *(f"column {name!r} is ignored: {why}" for name, why in ids.items())]
    metric, warnings = ("r2", []) if kind == "tabular_regression" else _classes(schema)
    return Inference(kind, metric, explanation, [*warnings, *_constant(schema), *_gaps(schema)], list(ids), rows=len(table))


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


def id_reason(column: Column) -> str | None:
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
