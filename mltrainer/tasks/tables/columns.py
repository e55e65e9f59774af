"""A column's cells as values of one kind.

Text is read value by value, each distinct one once: most columns repeat theirs. Plain numbers and
categories are distinguished by the cells; the other kinds are named in `data.columns`, so that a model's inputs are in a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.checkpointing.inference_script import (
    DATES,
    EXACT,
    FORMATS,
    LARGEST,
    PARSERS,
    WORDS,
    as_number,
    bucket_of,
    date_parts,
    unit_of,
    word_counts,
)
from mltrainer.configs.project import ColumnKind
from mltrainer.tasks.array_operations import distinct

if TYPE_CHECKING:
    import polars

    Cells = np.ndarray | polars.Series  # of one column: numbers or texts

NUMERIC_SHARE = 0.9  # chosen by us: from this share of numbers on, text in a column is taken for a mistake, not for a category
NONE = np.zeros(0, dtype=np.int64)
# Whole numbers that are not written back unchanged: 0123, 1E5 as in a code, more digits than a float64 surely holds,
# and those of a telephone.
NAMES = r"^(?:[-+]?0\d+|\d+E\d+|[-+]?\d{16,}|\+\d{7,})$"
NAME = re.compile(NAMES)
ZEROS = r"^\d+\.\d*[1-9]0+$"  # 1.10, which as a number is 1.1
MOST_VERSIONS = 100  # chosen by us: a column with more distinct texts holds quantities, some with a zero at their end
SHORT = 1000  # cells; up to this number, a query of polars takes longer than reading them one by one
CODED = ("category", "hashed", "text")


@dataclass(frozen=True)
class Column:
    """A column with its cells parsed.

    Attributes:
        name: The column's name.
        kind: The kind of its cells.
        values: The rows' values: float64 with NaN for missing, dates as seconds since 1970; or int64, places in `texts`, -1 for
            missing.
        texts: The distinct texts of a category, hashed or text column, sorted.
        wrong: Rows whose cells are not of this kind, missing ones aside; of a number column also those that float32 cannot hold.
        lookup: The matrix's values of each of `texts` [texts, parts], where they are not fitted; None for other kinds.
        parts: The parts of a date that are columns of the matrix.
        unit: The unit of a formatted column's numbers, from `unit_of`; empty where they have none.
    """

    name: str
    kind: ColumnKind
    values: np.ndarray
    texts: list[str] = field(default_factory=list)
    wrong: np.ndarray = field(default_factory=lambda: NONE)
    lookup: np.ndarray | None = None
    parts: tuple[str, ...] = ()
    unit: str = ""

    @property
    def is_category(self) -> bool:
        """Whether the matrix holds codes of it, which have no order."""
        return self.kind in ("category", "hashed")

    @property
    def width(self) -> int:
        """Number of its columns in the matrix."""
        return WORDS if self.kind == "text" else len(self.parts) or 1

    @property
    def missing(self) -> np.ndarray:
        """A mask of the rows without a value."""
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
        return Column(self.name, self.kind, self.values[rows], self.texts, NONE, self.lookup, self.parts, self.unit)

    def without_wrong(self) -> Column:
        """Return the column with its wrong cells missing."""
        values = self.values.copy()
        values[self.wrong] = np.nan if values.dtype == np.float64 else -1
        return Column(self.name, self.kind, values, self.texts, NONE, self.lookup, self.parts, self.unit)

    def block(self, ids: np.ndarray, vocabulary: list[str] | None = None) -> np.ndarray:
        """Return some rows of its part of the matrix, float32 [rows, width]; `vocabulary`: a category's training values."""
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
        name: The column's name.
        cells: The column's cells, float64 with NaN for missing, or text.
        kind: The kind in `data.columns`; None: plain numbers where at least 90 % of its cells are, and none of the whole numbers
            is a name (`name_among`), else categories.
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
        are_numbers = present and present - int(junk.sum()) >= NUMERIC_SHARE * present
        if kind or (are_numbers and name_among(cells) is None):
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
    text[:] = ["" if np.isnan(n) else str(int(n)) if n == np.floor(n) and abs(n) <= EXACT else repr(float(n)) for n in numbers]
    return text


def _plain_numbers(cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Return each text cell's number, NaN where it is none, and a mask of the missing cells."""
    if isinstance(cells, np.ndarray):
        texts, codes = encode_texts(cells)
        return _mapped_texts(texts, codes, _number), np.less(codes, 0)
    import polars

    # Copied, as polars may return its memory read-only, and cells are written below.
    numbers: np.ndarray = cells.cast(polars.Float64, strict=False).to_numpy().copy()  # NaN where it is none
    if not np.isnan(numbers).any():  # no spelling of a missing value is a number
        return numbers, np.zeros(len(cells), dtype=bool)
    missing = (cells == "").to_numpy()
    # Only texts that could be numbers cost a call of Python: those with a digit, or infinity.
    unread = np.flatnonzero(np.isnan(numbers) & ~missing & cells.str.contains(r"\d|(?i)inf").to_numpy())
    if len(unread):
        numbers[unread] = _mapped_texts(*encode_texts(cells.gather(unread)), _number)  # numbers for Python alone
    numbers[missing] = np.nan
    return numbers, missing


def name_among(cells: Cells) -> str | None:
    """Return a cell that is the name of something rather than a number, such as 01234, or None.

    A number would lose part of it: a leading zero, a plus, or digits; or two cells become one number, as 1.1 and 1.10. A
    column with a fraction in it holds quantities, whatever its whole numbers look like, and one with a minus is no telephone.
    """
    if isinstance(cells, np.ndarray) or len(cells) <= SHORT:
        texts = cells.tolist() if isinstance(cells, np.ndarray) else cells.to_list()
        if any("." in cell for cell in texts):
            return _version_among(texts)
    elif cells.str.contains(".", literal=True).any():
        # Looked at first, as the texts of a long column of quantities take memory.
        return None if cells.head(SHORT).n_unique() > MOST_VERSIONS else _version_among(cells.unique().to_list())
    else:
        texts = cells.filter(cells.str.contains(f"{NAMES}|^-")).unique(maintain_order=True).to_list()
    has_minus = any(cell.startswith("-") for cell in texts)
    return next((cell for cell in texts if NAME.match(cell) and not _is_exact(cell, has_minus)), None)


def _version_among(texts: Iterable[str]) -> str | None:
    """Return a text that differs from another one of few by zeros at its end alone, or None."""
    found = set(texts)
    if len(found) > MOST_VERSIONS:
        return None
    return min((text for text in found if re.match(ZEROS, text) and text.rstrip("0") in found), default=None)


def _is_exact(text: str, is_signed: bool) -> bool:
    """Return True if a float64 holds a whole number of many digits exactly, with its plus where that is a sign."""
    digits = text.lstrip("+-")
    return (
        (is_signed or not text.startswith("+"))
        and digits.isdecimal()
        and digits[0] != "0"
        and (int(digits) <= EXACT or int(float(digits)) == int(digits))
    )


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
    # The empty text, which sorts first, is missing: other spellings were emptied when the file was read.
    gone = int(found[:1] == [""])
    return found[gone:], codes.astype(np.int64) - gone


def _mapped_texts(texts: list[str], codes: np.ndarray, function: Callable[[str], float | None]) -> np.ndarray:
    """Return a function's value of each row's text, NaN where it has none or the cell is missing."""
    values = [function(text) for text in texts]
    # A missing cell has the code -1, which picks the last entry.
    table = np.array([*(np.nan if value is None else value for value in values), np.nan], dtype=np.float64)
    found: np.ndarray = table[codes]
    return found


def _parsed(name: str, kind: ColumnKind, texts: list[str], codes: np.ndarray) -> Column:
    values = _mapped_texts(texts, codes, PARSERS[kind])
    unit = ""
    if kind in FORMATS:
        units = np.array([*(unit_of(text, FORMATS[kind]) for text in texts), ""])[codes]
        unit = main_unit(units)
        values[(units != "") & (units != unit)] = np.nan  # 12 cm and 3 m are no numbers of one column
    wrong = np.flatnonzero(np.isnan(values) & (codes >= 0))
    if kind not in DATES:
        return replace(_numbers(name, kind, values, wrong), unit=unit)
    return Column(name, kind, values, wrong=wrong, parts=_varying_parts(values[~np.isnan(values)]))


def main_unit(units: np.ndarray) -> str:
    """Return the most frequent unit of some cells, empty where none has one."""
    found, counts = np.unique(units[units != ""], return_counts=True)
    return str(found[counts.argmax()]) if len(found) else ""


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
    return np.array([*(word_counts(text) for text in texts), [0] * WORDS], dtype=np.uint8)


_LOOKUPS: dict[Any, Callable[[list[str]], np.ndarray]] = {"hashed": _buckets, "text": _counts}
