"""A table's validation rows beside its training rows: other units, near copies, rows of one group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.checks import Check, DataView, Words, findings_of
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.near_groups import HELD_OUT, TRAINED
from mltrainer.tasks.reading import Numbers, Reading
from mltrainer.tasks.sample_findings import NEAR_COPIES, SHIFTED_INPUTS, UNITS
from mltrainer.tasks.spacing import evenly_spaced
from mltrainer.tasks.splits import SplitIds
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.leakage import Target
from mltrainer.tasks.tables.near_duplicates import near_duplicates
from mltrainer.tasks.units import LOOKED_AT

BY_GROUP = "Then split by what they share: split: {group: COLUMN}"


def split_findings(
    columns: Sequence[Column], targets: Sequence[Target], ids: SplitIds, limits: DataLimits, *, is_grouped: bool, is_apart: bool
) -> list[Finding]:
    """Return the findings on validation rows beside training rows.

    Args:
        columns: The features.
        targets: The targets.
        ids: The rows of both splits.
        limits: The limits of the findings, among them the least share of near copies that is reported.
        is_grouped: Whether rows that belong together are kept together already.
        is_apart: Whether validation comes from a separate file, or was chosen row by row, so that it may differ from training.
    """
    quantities = [target.target for target in targets if target.labels is None]
    numbers = [column for column in columns if column.kind == "number"]
    view = DataView(
        _reading([*numbers, *quantities], ids.train),
        _reading([*numbers, *quantities], ids.validation),
        limits,
        Words("rows", "columns of numbers", "column ", BY_GROUP),
        near=_beside(numbers, ids),
        is_shift_a_fault=is_apart,
        has_columns=True,
        classes=max((target.classes for target in targets), default=0),
    )
    copies = Check("nearly equal rows", lambda _: near_duplicates(columns, ids.train, ids.validation, limits))
    return findings_of([UNITS, SHIFTED_INPUTS, copies, *([] if is_grouped or not numbers else [NEAR_COPIES])], view)


def _reading(columns: Sequence[Column], rows: np.ndarray) -> Reading:
    """Return the numbers of evenly spaced rows; a quantity to predict is a column among them."""
    places = evenly_spaced(rows, LOOKED_AT)
    names = [repr(column.name) for column in columns]
    values = np.stack([column.values[places] for column in columns], axis=1) if columns else np.zeros((len(places), 0))
    inputs = {"": Numbers(values, names, len(names), is_whole=False)} if columns else {}
    return Reading(len(rows), None, places, inputs, [], None, kind="values")


def _beside(numbers: Sequence[Column], ids: SplitIds) -> tuple[np.ndarray, np.ndarray]:
    """Return the first rows: those of one group follow one another in most files, and rows from everywhere hold few of each."""
    train = np.sort(ids.train)[:TRAINED]
    held_out = ids.validation[ids.validation <= train[-1]]
    one, other = (np.array([column.values[rows] for column in numbers]).T for rows in (train, evenly_spaced(held_out, HELD_OUT)))
    return one, other
