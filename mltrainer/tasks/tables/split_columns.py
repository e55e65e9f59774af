"""Columns that define the split of rows: by the splits' names, by yes and no, or by the numbers of folds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mltrainer.checkpointing.inference_script import as_boolean
from mltrainer.tasks.splits import SPLITS, WORDS
from mltrainer.tasks.tables.ambiguities import as_key
from mltrainer.tasks.tables.columns import Column

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
