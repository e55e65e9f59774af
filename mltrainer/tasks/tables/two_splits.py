"""A table's validation rows beside its training rows: other units, near copies, rows of one group."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.tasks.array_operations import evenly_spaced, row_hashes
from mltrainer.tasks.checks import NEAR_COPIES, SHIFTED_INPUTS, UNITS, Check, findings_of
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.reading import DataView, Numbers, Reading, Words
from mltrainer.tasks.split_checks import HELD_OUT, LOOKED_AT, TRAINED
from mltrainer.tasks.splits import SplitIds
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.leakage import Target

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
    quantities = [target.column for target in targets if target.labels is None]
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


DIGITS = 3  # digits of a number that are compared
COMPARED = 20_000  # rows, evenly spaced
LEAST_COLUMNS = 3  # with fewer, all but one say too little
FEWEST = 10  # chosen by us: fewer rows may be chance where columns depend on each other
TIMES_CHANCE = 10  # chosen by us: the factor over the count that independent columns would give


def near_duplicates(columns: Sequence[Column], train: np.ndarray, held_out: np.ndarray, limits: DataLimits) -> list[Finding]:
    """Return a warning where validation rows nearly repeat training rows, more often than by chance.

    Args:
        columns: The features.
        train: The training rows.
        held_out: The validation rows.
        limits: The limits of the findings, among them the least share of rows that is reported.
    """
    if len(columns) < LEAST_COLUMNS:
        return []
    rows = evenly_spaced(held_out, COMPARED)
    hashes = [_hashes(column.values, place) for place, column in enumerate(columns)]
    found = [*_but_one(columns, hashes, train, rows, limits), *_but_digits(columns, hashes, train, rows, limits)]
    if not found:
        return []
    count, how = max(found)
    text = f"{count} of {len(rows)} validation rows equal a training row {how}"
    hint = "are they copies? Then split by what they share: split: {group: COLUMN}"
    return [Finding("warning", f"{text}: {hint}")]


def _but_one(
    columns: Sequence[Column], hashes: Sequence[np.ndarray], train: np.ndarray, rows: np.ndarray, limits: DataLimits
) -> list[tuple[int, str]]:
    """Return counts of rows equal to a training row except in one column, each with its phrase, where more than by chance."""
    whole = _sum(hashes)
    alike = np.array([_alike(column.values, train) for column in columns])
    found = []
    for place, column in enumerate(columns):
        chance = len(train) * float(np.prod(np.delete(alike, place)))
        count = _near(whole - hashes[place], whole, train, rows)
        if _is_more(count, chance, len(rows), limits):
            found.append((count, f"but for column {column.name!r}"))
    return found


def _but_digits(
    columns: Sequence[Column], hashes: Sequence[np.ndarray], train: np.ndarray, rows: np.ndarray, limits: DataLimits
) -> list[tuple[int, str]]:
    """Return the count of rows equal to a training row in three digits of each number, with its words, if above chance."""
    coarse = [_rounded(column.values) for column in columns]
    same = [part is column.values for part, column in zip(coarse, columns, strict=True)]
    if all(same):
        return []
    keys = (hashes[place] if same[place] else _hashes(part, place) for place, part in enumerate(coarse))
    count = _near(_sum(keys), _sum(hashes), train, rows)
    chance = len(train) * float(np.prod([_alike(part, train) for part in coarse]))
    return [(count, f"in {DIGITS} digits of each number")] if _is_more(count, chance, len(rows), limits) else []


def _is_more(count: int, chance: float, rows: int, limits: DataLimits) -> bool:
    return count >= max(FEWEST, limits.leak_rows * rows, TIMES_CHANCE * chance * rows)


def _hashes(values: np.ndarray, place: int) -> np.ndarray:
    """Return a hash of each cell, of which those of a row's columns may be summed."""
    # A different odd factor for each column: it maps no two hashes to one, and cells in other columns add up to another sum.
    return row_hashes([values]) * np.uint64(2 * place + 1)


def _sum(hashes: Iterable[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.add, hashes)  # one by one: numpy's sum of several copies them all beside each other


def _near(keys: np.ndarray, whole: np.ndarray, train: np.ndarray, rows: np.ndarray) -> int:
    """Return the number of rows that have the key of a training row, without those that are equal to one as a whole."""
    near = _within(keys[rows], keys[train])
    return int(near.sum() - _within(whole[rows][near], whole[train]).sum()) if near.any() else 0


def _within(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Return the mask of the few hashes that occur in many; only those that begin like one of the few are compared."""
    begins = np.zeros(1 << 20, dtype=bool)
    begins[few >> np.uint64(44)] = True
    return np.isin(few, many[begins[many >> np.uint64(44)]])


def _alike(values: np.ndarray, train: np.ndarray) -> float:
    """Return the chance that two training rows have the same value, estimated from some of them."""
    rows = evenly_spaced(train, COMPARED)
    _, counts = np.unique(values[rows], return_counts=True)
    return float((counts * (counts - 1.0)).sum() / max(1, len(rows) * (len(rows) - 1)))


def _rounded(values: np.ndarray) -> np.ndarray:
    """Return numbers with three digits; categories as they are."""
    if values.dtype != np.float64:
        return values
    # 0 has the unit 0 and NaN has none: both are left as they are, below.
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(values))) - DIGITS + 1)
        rounded: np.ndarray = np.where(np.isfinite(unit) & (unit > 0), np.round(values / unit) * unit, values)
    return rounded
