"""Numbers that may mean a missing value, such as -200 or 999: far from all others, and far more frequent than any of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mltrainer.configs.project import ACCEPTED, PLACEHOLDER
from mltrainer.tasks.content import Table
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.tables.ambiguities import as_key
from mltrainer.tasks.tables.columns import Column

# Chosen by us, looking at air quality (-200), bank marketing (999, -1), diabetes (0) and counts, where 0 is a value:
LEAST_SHARE = 0.01  # of the known values
LEAST_ROWS = 10
OTHERS = 20  # distinct values beside it, below which a number is as good as a category
TIMES = 5  # as often as the next most frequent value
APART = 0.5  # standard deviations of the others between it and the nearest of them
MOSTLY = 0.5  # a 0 in more of the values is an amount, as in counts of words
STANDARD = 0.02  # within this distance of a mean of 0 and a deviation of 1, a column was standardized, and so was a 0 in it
FAR = 2.0  # standard deviations from the others, at which a number need not be more frequent than they are


@dataclass(frozen=True)
class Sentinel:
    """A number of a column that may mean a missing value.

    Attributes:
        column: The column's name.
        rows: The rows that hold it.
        share: The number's share of the column's known values.
        spellings: The spellings of its cells.
        others: Columns that hold such a cell too, where it is a value.
        value: The number.
        known: The spellings of a missing value that are known already.
        also: Other columns that hold it, named in the same sentence.
    """

    column: str
    rows: np.ndarray
    share: float
    spellings: list[str]
    others: list[str]
    value: float
    known: list[str]
    also: list[str] = field(default_factory=list)

    def finding(self, targets: Collection[str], accepted: Mapping[str, str]) -> Finding:
        """Return planning's finding: in a target an error until it is answered, except for 0, which is usually an amount.

        Args:
            targets: The columns to predict.
            accepted: The columns in which such a number is a value, each with the reason.
        """
        if self.column in accepted:
            return Finding("warning", f"{ACCEPTED}{self._what}, because: {accepted[self.column]}")
        if self.column not in targets or self.value == 0:
            return Finding("warning", self.question)
        entry = f"{as_key(self.column)}: {PLACEHOLDER}"
        answer = f"if it is a value, say why in place of {PLACEHOLDER}: data: {{sentinel_accepted: {{{entry}}}}}"
        return Finding("error", f"in the target, {self.question}, which leaves these rows out; {answer}")

    @property
    def _what(self) -> str:
        said = ", ".join(self.spellings)
        more = f", and in {len(self.also)} other columns ({', '.join(map(repr, self.also))})" if self.also else ""
        where = f"{self.share:.0%} of the rows of {self.column!r} ({len(self.rows)}){more}"
        return f"{said} is in {where}, far from all other values"

    @property
    def question(self) -> str:
        """The sentence for a person: the number, and the setting for it."""
        if self.others:
            held = f"data.missing would empty it in {', '.join(map(repr, self.others[:5]))} too"
            return f"{self._what}: if it means no value, leave these cells empty; {held}"
        listed = json.dumps([*self.known, *self.spellings], ensure_ascii=False)
        return f"{self._what}: if it means no value, write data: {{missing: {listed}}}"


def together(found: Sequence[Sentinel], apart: Collection[str]) -> list[Sentinel]:
    """Return one sentinel for each number that several columns hold, except for columns with a separate question."""
    merged: dict[object, Sentinel] = {}
    for one in found:
        key = one.column if one.column in apart else one.value
        first = merged.setdefault(key, one)
        if first is not one:
            spellings = sorted({*first.spellings, *one.spellings})
            merged[key] = replace(first, spellings=spellings, also=[*first.also, one.column])
    return [*merged.values()]


def sentinels(table: Table, columns: Iterable[Column], kept: np.ndarray, rows: np.ndarray) -> list[Sentinel]:
    """Return the numbers at an end of some columns' values that may mean a missing value.

    Args:
        table: The cells.
        columns: Features and target.
        kept: The table's row of each row of the columns.
        rows: The rows that are examined.
    """
    numeric = [column for column in columns if column.values.dtype == np.float64]
    found = [
        (column, value, rows[column.values[rows] == value]) for column in numeric for value in suspect_ends(column.values[rows])
    ]
    others = _others(numeric, rows, {(column.name, value) for column, value, _ in found})
    return [
        Sentinel(
            column.name,
            held,
            len(held) / int((~np.isnan(column.values[rows])).sum()),
            _spellings(table, column.name, kept[held]),
            others[value],
            value,
            table.missing,
        )
        for column, value, held in found
    ]


def _others(columns: Sequence[Column], rows: np.ndarray, suspects: set[tuple[str, float]]) -> dict[float, list[str]]:
    """Return, by suspect value, the columns that hold it where it is no suspect."""
    found: dict[float, list[str]] = {value: [] for _, value in suspects}
    asked = np.array(sorted(found))
    for column in columns if found else []:
        values = column.values[rows]
        for value in np.unique(values[np.isin(values, asked)]).tolist():
            if (column.name, value) not in suspects:
                found[value].append(column.name)
    return found


def suspect_ends(values: np.ndarray) -> list[float]:
    """Return the smallest and the largest of some values, each only where it may mean a missing value."""
    numbers, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    if len(numbers) <= OTHERS:
        return []
    return [float(numbers[place]) for place in (0, len(numbers) - 1) if _is_suspect(numbers, counts, place)]


def _is_suspect(numbers: np.ndarray, counts: np.ndarray, place: int) -> bool:
    count = counts[place]
    is_amount = numbers[place] == 0 and count > MOSTLY * counts.sum()
    if count < max(LEAST_ROWS, LEAST_SHARE * counts.sum()) or is_amount or _is_standardized(numbers, counts):
        return False
    others, times = np.delete(numbers, place), np.delete(counts, place)
    mean = np.average(others, weights=times)
    spread = np.sqrt(np.average(np.square(others - mean), weights=times))
    apart = np.abs(others - numbers[place]).min() / max(spread, np.finfo(np.float64).tiny)
    is_alone_below_zero = numbers[place] < 0 <= others.min()
    return bool(apart >= FAR or (count >= TIMES * times.max() and (is_alone_below_zero or apart >= APART)))


def _is_standardized(numbers: np.ndarray, counts: np.ndarray) -> bool:
    mean = np.average(numbers, weights=counts)
    spread = np.sqrt(np.average(np.square(numbers - mean), weights=counts))
    return bool(abs(mean) < STANDARD and abs(spread - 1) < STANDARD)


def _spellings(table: Table, name: str, rows: np.ndarray) -> list[str]:
    """Return the spellings of a column's cells in some rows, sorted."""
    cells = table.columns[name]
    if isinstance(cells, np.ndarray) and cells.dtype != object:
        return [f"{float(cells[rows[0]]):.12g}"]
    found: Sequence[object] = cells[rows].tolist() if isinstance(cells, np.ndarray) else cells.gather(rows).unique().to_list()
    return sorted({str(cell) for cell in found})
