"""The config for texts: classification of a table's, with the column of texts, and files of conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mltrainer.errors import did_you_mean
from mltrainer.tasks.content import Table
from mltrainer.tasks.data_findings import rare_classes, suited_metric
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.config_inference import InferredConfig, id_reason
from mltrainer.tasks.text.labelled_texts import classes_of, text_cells
from mltrainer.workspace import json_or_none, machine_faults

MEAN_WORDS = 3  # chosen by us: names and addresses have fewer words than a sentence
DISTINCT_SHARE = 0.9  # chosen by us: some sentences occur twice, the words of a category nearly always
FEWEST = 20  # chosen by us: with fewer rows, distinct values prove nothing
ROWS_PER_CLASS = 5  # chosen by us: a target with fewer rows for each value is no class

CONVERSATIONS = (".jsonl", ".ndjson")
FORMS = '{"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ..., "completion": ...}'
KEYS = ("messages", "prompt", "completion")
MISSPELT = 0.7  # chosen by us: `prompt_text` and `prompt` are alike enough, `conversations` and `completion` are not
LONGEST_LINE = 1 << 24  # bytes; of a longer line it is not known what it is


def holds_conversations(path: Path) -> bool:
    """Return True if a path is a JSONL file whose first line is a conversation.

    Raises:
        MachineError: The file may not be read, or the disk failed.
    """
    return is_conversation(first_row(path))


def first_row(path: Path) -> object:
    """Return the value in the first line of a JSONL file; None of other files, and of a line that cannot be read.

    Raises:
        MachineError: The file may not be read, or the disk failed.
    """
    if path.suffix.lower() not in CONVERSATIONS or not path.is_file():
        return None
    with machine_faults(path.name), path.open("rb") as file:
        return json_or_none(file.readline(LONGEST_LINE))  # a broken line is reported by what reads the file


def found_in(row: object) -> str:
    """Return the keys of a row that is no conversation, and the key that one of them may be meant for, for a message."""
    if not isinstance(row, dict):
        return type(row).__name__
    question = next((text for key in row if key not in KEYS and (text := did_you_mean(key, KEYS, MISSPELT))), "")
    return (", ".join(map(repr, row)) or "no key") + question


def is_conversation(row: object) -> bool:
    """Return True if a JSON value has messages, or a prompt with its completion."""
    return isinstance(row, dict) and ("messages" in row or {"prompt", "completion"} <= row.keys())


def infer_texts(table: Table, target: str, plain: Mapping[str, Column]) -> InferredConfig | None:
    """Return text classification where the only feature beside ids is free text; None for other tables.

    Args:
        table: The cells.
        target: The column to predict.
        plain: The columns as inferred from their cells alone.
    """
    others = [name for name in table.columns if name != target]
    found = [name for name in others if is_free_text(plain[name])]
    reasons = {name: id_reason(plain[name]) for name in others if name not in found}
    if len(found) != 1 or None in reasons.values():
        return None
    labels, names = classes_of([cell for cell in text_cells(table, target) if cell])
    if ROWS_PER_CLASS * len(names) > len(labels):
        return None
    words = mean_words(plain[found[0]].texts)
    explanation = [
        f"column {found[0]!r} holds the texts: {words:.0f} words in the mean, nearly all of {len(table)} distinct",
        f"column {target!r} holds the classes, {len(names)} of them: text_classification",
        *(f"column {name!r} is ignored: {why}" for name, why in reasons.items()),
    ]
    counts = np.bincount(labels)
    metric, warnings = suited_metric(names, counts)
    warnings += rare_classes(names, counts)
    return InferredConfig("text_classification", metric, explanation, warnings, list(reasons), text=found[0], rows=len(table))


def is_free_text(column: Column) -> bool:
    """Return True if cells are sentences: three words or more in the mean, nearly all distinct."""
    present = len(column.values) - int(column.missing.sum())
    distinct = column.kind == "category" and len(column.texts) >= DISTINCT_SHARE * present
    return present >= FEWEST and distinct and mean_words(column.texts) >= MEAN_WORDS


def mean_words(texts: Sequence[str]) -> float:
    """Return the mean number of words of some texts."""
    return sum(len(text.split()) for text in texts) / max(1, len(texts))
