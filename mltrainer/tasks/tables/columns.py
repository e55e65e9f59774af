"""A column's cells as values of one kind.

Text is read value by value, each distinct one once: most columns repeat theirs. The kinds that version 0.1 knew, plain numbers
and categories, are told apart by the cells; the others are named in `data.columns`, so that what a model sees stands in a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.checkpointing.inference_script import (
    DATES,
    LARGEST,
    MISSING,
    PARSERS,
    WORDS,
    as_number,
    bucket_of,
    date_parts,
    word_counts,
)
from mltrainer.configs.project import ColumnKind
from mltrainer.tasks.distinct import distinct

if TYPE_CHECKING:
    from mltrainer.tasks.cells import Cells

NUMERIC_SHARE = 0.9  # chosen by us: from this share of numbers on, text in a column is taken for a mistake, not for a category
NONE = np.zeros(0, dtype=np.int64)
CODED = ("category", "hashed", "text")


@dataclass(frozen=True)
class Column:
    """A column as it was understood.

    Attributes:
        name: Its name.
        kind: What its cells are.
        values: float64 with NaN for missing: numbers, dates as seconds since 1970; or int64, places in `texts`, -1 for missing.
        texts: The distinct texts of a category, hashed or text column, sorted.
        wrong: Rows whose cells are not of this kind, missing ones aside; of a number column also those that float32 cannot hold.
        lookup: What each of `texts` is in the matrix [texts, parts], where that is not fitted; None for other kinds.
        parts: What a date becomes in the matrix.
    """

    name: str
    kind: ColumnKind
    values: np.ndarray
    texts: list[str] = field(default_factory=list)
    wrong: np.ndarray = field(default_factory=lambda: NONE)
    lookup: np.ndarray | None = None
    parts: tuple[str, ...] = ()

    @property
    def is_category(self) -> bool:
        """Whether the matrix holds codes of it, which have no order."""
        return self.kind in ("category", "hashed")

    @property
    def width(self) -> int:
        """How many columns of the matrix it becomes."""
        return WORDS if self.kind == "text" else len(self.parts) or 1

    @property
    def missing(self) -> np.ndarray:
        """Which rows have no value."""
        empty: np.ndarray = np.isnan(self.values) if self.values.dtype == np.float64 else np.less(self.values, 0)
        return empty

    def distinct(self, ids: np.ndarray) -> int:
        """Return the number of distinct values in some rows, missing ones aside."""
        return len(distinct(self.values[ids][~self.missing[ids]]))

    def is_constant(self, ids: np.ndarray) -> bool:
        """Return True if some rows have one value, all of them or none missing."""
        values = self.values[ids]
        return bool((values == values[0]).all() or self.missing[ids].all())

    def shown(self, row: int) -> str:
        """Return a row's value for a message."""
        return repr(self.texts[self.values[row]]) if self.kind in CODED else repr(float(self.values[row]))

    def take_rows(self, rows: np.ndarray) -> Column:
        """Return the column with some rows only."""
        return Column(self.name, self.kind, self.values[rows], self.texts, NONE, self.lookup, self.parts)

    def without_wrong(self) -> Column:
        """Return the column with its wrong cells missing."""
        values = self.values.copy()
        values[self.wrong] = np.nan if values.dtype == np.float64 else -1
        return Column(self.name, self.kind, values, self.texts, NONE, self.lookup, self.parts)

    def block(self, ids: np.ndarray, vocabulary: list[str] | None = None) -> np.ndarray:
        """Return some rows as the matrix has them, float32 [rows, width]; `vocabulary`: of a category, what training has seen."""
        values = self.values[ids]
        if self.kind in DATES:
            return date_parts(values, self.parts)
        lookup = self._codes(vocabulary) if vocabulary is not None else self.lookup
        found: np.ndarray = values[:, None] if lookup is None else lookup[values]
        return found.astype(np.float32)

    def _codes(self, vocabulary: list[str]) -> np.ndarray:
        """Return each text's place in a vocabulary, -1 where it is not in it; the last row is for missing."""
        places = {text: place for place, text in enumerate(vocabulary)}
        return np.array([*(places.get(text, -1) for text in self.texts), -1], dtype=np.float32)[:, None]


def parse_column(name: str, cells: Cells, kind: ColumnKind | None = None) -> Column:
    """Return a column's values.

    Args:
        name: The column's.
        cells: float64 with NaN for missing, or text.
        kind: What `data.columns` says; None: plain numbers where at least 90 % of its cells are, else categories.
    """
    if isinstance(cells, np.ndarray) and cells.dtype != object:
        if kind in (None, "number", "formatted", "decimal_comma"):
            return _numbers(name, kind or "number", cells.astype(np.float64), NONE)
        cells = _as_text(cells)
    if kind in (None, "number"):
        numbers, missing = _plain_numbers(cells)
        junk = np.isnan(numbers) & ~missing
        present = len(cells) - int(missing.sum())
        # Without `present`, a column with no value at all would have its share of numbers: 0 of 0.
        if kind or (present and present - int(junk.sum()) >= NUMERIC_SHARE * present):
            return _numbers(name, "number", numbers, np.flatnonzero(junk))
    texts, codes = encode_texts(cells)
    if kind in PARSERS:
        return _parsed(name, kind, texts, codes)
    lookup = _LOOKUPS[kind](texts) if kind in _LOOKUPS else None
    return Column(name, kind or "category", codes, texts, lookup=lookup)


def _numbers(name: str, kind: ColumnKind, numbers: np.ndarray, junk: np.ndarray) -> Column:
    too_large = np.flatnonzero(np.abs(numbers) > LARGEST)
    return Column(name, kind, numbers, wrong=np.union1d(junk, too_large) if len(too_large) else junk)


def _as_text(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as a person writes them: whole ones without a point, missing ones empty."""
    text = np.empty(len(numbers), dtype=object)
    text[:] = ["" if np.isnan(n) else str(int(n)) if n == np.floor(n) and abs(n) < 1e15 else repr(float(n)) for n in numbers]
    return text


def _plain_numbers(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Return each text cell's number, NaN where it is none, and which cells are missing."""
    if isinstance(cells, np.ndarray):
        texts, codes = encode_texts(cells)
        return _mapped_texts(texts, codes, _number), np.less(codes, 0)
    import polars

    # Copied, as polars may hand out memory of its own that is read-only, and cells are written below.
    numbers: np.ndarray = cells.cast(polars.Float64, strict=False).to_numpy().copy()  # NaN where it is none
    if not np.isnan(numbers).any():  # no spelling of a missing value is a number
        return numbers, np.zeros(len(cells), dtype=bool)
    missing = cells.is_in(list(MISSING)).to_numpy()
    is_unread = np.isnan(numbers) & ~missing
    if is_unread.any():
        unread = cells.filter(polars.Series(is_unread)).unique()
        # Only what could be a number costs a call of Python: a text with a digit, or infinity.
        for text in unread.filter(unread.str.contains(r"\d|(?i)inf")):
            if not np.isnan(number := _number(text)):  # what Python takes for a number is one
                numbers[(cells == text).to_numpy()] = number
    numbers[missing] = np.nan
    return numbers, missing


def _number(cell: str) -> float:
    """Return a cell's number, NaN where it is none."""
    value = as_number(cell)
    return np.nan if value is None else value


def encode_texts(cells: Cells) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts of a column, sorted, and each row's place among them, -1 where it is missing."""
    if isinstance(cells, np.ndarray):
        texts, codes = np.unique(cells, return_inverse=True)
        found = [str(text) for text in texts]
    else:
        import polars

        values = cells.unique().sort()
        # An Enum, not a Categorical: its codes follow the sorted values, not the order in which cells occur.
        codes = cells.cast(polars.Enum(values)).to_physical().to_numpy()
        found = values.to_list()
    gone = np.array([text in MISSING for text in found], dtype=bool)
    places = np.where(gone, -1, np.cumsum(~gone) - 1)
    return [text for text, is_gone in zip(found, gone, strict=True) if not is_gone], places[codes].astype(np.int64)


def _mapped_texts(texts: list[str], codes: np.ndarray, function: Callable[[str], float | None]) -> np.ndarray:
    """Return a function's value of each row's text, NaN where it has none or the cell is missing."""
    values = [function(text) for text in texts]
    # A missing cell has the code -1, which picks the last entry.
    table = np.array([*(np.nan if value is None else value for value in values), np.nan], dtype=np.float64)
    found: np.ndarray = table[codes]
    return found


def _parsed(name: str, kind: ColumnKind, texts: list[str], codes: np.ndarray) -> Column:
    values = _mapped_texts(texts, codes, PARSERS[kind])
    wrong = np.flatnonzero(np.isnan(values) & (codes >= 0))
    if kind not in DATES:
        return _numbers(name, kind, values, wrong)
    return Column(name, kind, values, wrong=wrong, parts=_varying_parts(values[~np.isnan(values)]))


def _varying_parts(seconds: np.ndarray) -> tuple[str, ...]:
    """Return the parts of a date that differ between rows: days since 1970, and place in year, week and day."""
    day = np.floor(seconds / 86_400)
    waves = {
        "year": len(seconds) and np.ptp(seconds) > 45 * 86_400,  # in less than a season the year's circle is the days' line
        "week": len(np.unique(day % 7)) > 1,
        "day": len(np.unique(seconds - 86_400 * day)) > 1,
    }
    return ("days", *(f"{name}_{wave}" for name, varies in waves.items() if varies for wave in ("sin", "cos")))


def _buckets(texts: list[str]) -> np.ndarray:
    return np.array([*(bucket_of(text) for text in texts), -1], dtype=np.int16)[:, None]


def _counts(texts: list[str]) -> np.ndarray:
    # Cut off before the cast: a count of 256 would be 0 as uint8.
    return np.array([*(np.minimum(word_counts(text), 255) for text in texts), [0] * WORDS], dtype=np.uint8)


_LOOKUPS: dict[Any, Callable[[list[str]], np.ndarray]] = {"hashed": _buckets, "text": _counts}
