"""Which table asks for text classification, and which of its columns holds the texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltrainer.tasks.content import Table
from mltrainer.tasks.tables.columns import understand
from mltrainer.tasks.tables.inferring import Inference, id_reason
from mltrainer.tasks.text.reading import classes_of, text_cells

MEAN_WORDS = 3  # chosen by us: names and addresses have fewer words than a sentence
DISTINCT_SHARE = 0.9  # chosen by us: some sentences are said twice, the words of a category nearly always
FEWEST = 20  # chosen by us: in fewer rows, distinct values prove nothing
ROWS_PER_CLASS = 5  # chosen by us: a target with fewer rows for each value is no class
IMBALANCE = 10  # as for tables: above it, accuracy says little


def infer_texts(table: Table, target: str) -> Inference | None:
    """Return text classification where the only feature beside ids is free text; None where a table asks for something else."""
    others = [name for name in table.columns if name != target]
    found = [name for name in others if table.columns[name].dtype != np.float64 and is_free_text(text_cells(table, name))]
    reasons = {name: id_reason(understand(name, table.columns[name])) for name in others if name not in found}
    labels, names = classes_of([cell for cell in text_cells(table, target) if cell])
    if len(found) != 1 or None in reasons.values() or ROWS_PER_CLASS * len(names) > len(labels):
        return None
    words = mean_words(text_cells(table, found[0]))
    told = [
        f"column {found[0]!r} holds the texts: {words:.0f} words in the mean, nearly all of {len(table)} distinct",
        f"column {target!r} holds the classes, {len(names)} of them: text_classification",
        *(f"column {name!r} is ignored: {why}" for name, why in reasons.items()),
    ]
    metric, warnings = _metric(labels, names)
    return Inference("text_classification", metric, told, warnings, list(reasons), text=found[0])


def is_free_text(cells: Sequence[str]) -> bool:
    """Return whether cells are sentences of their own: three words or more in the mean, nearly all distinct."""
    present = [cell for cell in cells if cell]
    distinct = len(set(present)) >= DISTINCT_SHARE * len(present)
    return len(present) >= FEWEST and distinct and mean_words(present) >= MEAN_WORDS


def mean_words(cells: Sequence[str]) -> float:
    """Return the mean number of words of the cells that are not empty."""
    counts = [len(cell.split()) for cell in cells if cell]
    return sum(counts) / max(1, len(counts))


def _metric(labels: np.ndarray, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the metric that suits the classes' shares, and a warning where they are far from equal."""
    counts = np.bincount(labels)
    if counts.max() <= IMBALANCE * counts.min():
        return "accuracy", []
    most, least = int(counts.argmax()), int(counts.argmin())
    told = f"classes are imbalanced: {names[most]} has {counts[most]} rows, {names[least]} {counts[least]}"
    return "f1_macro", [f"{told}; f1_macro weighs all classes equally"]
