"""A table's validation rows beside its training rows: other units, near copies, rows of one group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.near_groups import TRAINED, near_group_finding
from mltrainer.tasks.spacing import evenly_spaced
from mltrainer.tasks.split_differences import known, shift_findings
from mltrainer.tasks.splits import SplitIds
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.leakage import Target
from mltrainer.tasks.tables.near_duplicates import near_duplicates
from mltrainer.tasks.units import LOOKED_AT, differing, unit_findings

BY_GROUP = "Then split by what they share: split: {group: COLUMN}"


def split_findings(
    columns: Sequence[Column], targets: Sequence[Target], ids: SplitIds, limits: DataLimits, *, is_grouped: bool, is_apart: bool
) -> list[Finding]:
    """Return the findings on validation rows beside training rows.

    Args:
        columns: The features.
        targets: What is predicted.
        ids: The rows of both splits.
        limits: Hold the share of near copies from which on they are told.
        is_grouped: Whether rows that belong together are kept together already.
        is_apart: Whether validation comes from a file of its own, or was chosen row by row, so that it may differ from training.
    """
    quantities = [target.target for target in targets if target.labels is None]
    numbers = [column for column in columns if column.kind == "number"]
    copies = near_duplicates(columns, ids.train, ids.validation, limits)
    near = [] if copies or is_grouped else _near(numbers, max((target.classes for target in targets), default=0), ids)
    units = _units([*numbers, *quantities], ids)
    return [*(units or (_shifted([*numbers, *quantities], ids) if is_apart else [])), *copies, *near]


def _units(columns: Sequence[Column], ids: SplitIds) -> list[Finding]:
    splits = [evenly_spaced(rows, LOOKED_AT) for rows in (ids.train, ids.validation)]
    train, held_out = ({f"column {column.name!r}": column.values[rows] for column in columns} for rows in splits)
    return unit_findings(differing(train, held_out))


def _shifted(columns: Sequence[Column], ids: SplitIds) -> list[Finding]:
    pairs = {repr(one.name): (known(one.values[ids.train]), known(one.values[ids.validation])) for one in columns}
    return shift_findings(pairs, "rows", "columns of numbers")


def _near(numbers: Sequence[Column], classes: int, ids: SplitIds) -> list[Finding]:
    if not numbers:
        return []
    # Rows of one group follow one another in most files, so that rows from everywhere would hold few of each.
    train = np.sort(ids.train)[:TRAINED]
    held_out = ids.validation[ids.validation <= train[-1]]
    rows = [np.stack([column.values[part] for column in numbers], axis=1) for part in (train, held_out)]
    return near_group_finding(rows[0], rows[1], classes, BY_GROUP)
