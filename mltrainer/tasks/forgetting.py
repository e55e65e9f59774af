"""Forgotten training samples: they leave the training split before anything is fitted on it, and their slots stay empty.

The order of an epoch is one of slots, one for each sample that was drawn into the split. So the samples that are left are
trained in the steps in which they were before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mltrainer.configs.forgotten import WHERE, read_rows
from mltrainer.errors import InputError, first_names
from mltrainer.records.common import FileRow
from mltrainer.tasks.content import file_row
from mltrainer.tasks.ids import Ids
from mltrainer.tasks.samples import Samples, pick
from mltrainer.tasks.stored.records import Part

NAMED = 3  # rows that a message names


@dataclass(frozen=True)
class Forgotten:
    """The rows that a config forgets.

    Attributes:
        rows: The ids of the samples, sorted.
        file: The row of the file that lists them.
    """

    rows: np.ndarray
    file: FileRow

    def described(self, place: Callable[[int], str]) -> str:
        """Return a sentence on the rows; `place` gives the source of one."""
        more = ", ..." if len(self.rows) > NAMED else ""
        first = ", ".join(place(row) for row in self.rows[:NAMED].tolist())
        return f"{len(self.rows)} training samples are forgotten, and their slots in each epoch are empty: {first}{more}"

    def filled(self, ids: Mapping[str, Ids]) -> np.ndarray:
        """Return for each slot of the training split's order the position of its sample among those left, -1 for an empty slot.

        Args:
            ids: The ids of each split, the forgotten ones among them.

        Raises:
            InputError: A row is in no training split, or none is left there.
        """
        train = np.asarray(ids["train"])
        if (others := np.setdiff1d(self.rows, train)).size:
            raise InputError(_elsewhere(others, ids), where=f"{WHERE}: {self.file.path}", hint=_HINT)
        is_left = ~np.isin(train, self.rows)
        if not is_left.any():
            raise InputError(f"all {len(train)} training samples are to be forgotten", where=WHERE, hint="leave some")
        return np.where(is_left, np.cumsum(is_left) - 1, -1)

    def left(self, train: Samples, ids: Mapping[str, Ids]) -> Samples:
        """Return training samples without the forgotten ones.

        Args:
            train: All samples of the training split.
            ids: The ids of each split.

        Raises:
            InputError: A row is in no training split, or the samples have an order of their own.
        """
        if train.is_stream or isinstance(train.dataset, Part):
            what = "the training samples stay in their files or come as a stream, in an order of their own"
            raise InputError(what, where=WHERE, hint="leave the rows out of the files, and train a new run: forget: null")
        filled = self.filled(ids)
        return replace(pick(train, np.flatnonzero(filled >= 0)), filled=filled)


_HINT = (
    "only training samples are forgotten; a sample of another split decides what is delivered and what is reported: leave it out "
    "of the data, and train a new run"
)


def forgotten(name: str | None, root: Path) -> Forgotten | None:
    """Return the rows that a config's `forget` names; None without it.

    Raises:
        InputError: The file is missing, or holds something else than rows.
    """
    if name is None:
        return None
    rows = read_rows(root / name, name)
    return Forgotten(np.array(rows, dtype=np.int64), file_row(root / name, name))


def _elsewhere(rows: np.ndarray, ids: Mapping[str, Ids]) -> str:
    """Return a sentence on rows that are in no training split."""
    found = {name: np.intersect1d(rows, np.asarray(part)) for name, part in ids.items() if name != "train"}
    unknown = np.setdiff1d(rows, np.concatenate([*found.values()]))
    parts = [f"in the {name} split: {_named(part)}" for name, part in found.items() if part.size]
    return "; ".join([*parts, *([f"no sample has the number {_named(unknown)}"] if unknown.size else [])])


def _named(rows: np.ndarray) -> str:
    return first_names([*map(str, rows.tolist())], NAMED)
