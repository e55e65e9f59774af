"""The trials of a long search beside its record: one compressed file of columns, named by its digest.

The record then has a mapping with the number of rows and the file's digest in place of the rows. The seal is of the whole
record, with the rows in it: it holds for both parts together.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mltrainer.workspace import MOST_BYTES, MOST_VALUES, from_json, plain, sha256_bytes

MOST_ROWS = 1000  # of a record that holds its trials itself; older records, whose bytes must not change, have fewer
EVIDENCE, TRIALS = "evidence", "trials"
FIRST, LAST = "trials-", ".json.xz"  # of a file's name
_MARK = b'"table":'  # in the bytes of every record that has one
_DIGEST = re.compile("[0-9a-f]{64}")
_MEMORY = 64 << 20  # bytes that unpacking may take, besides its output

Content = dict[str, Any]  # of JSON
Row = Content


class Reference(NamedTuple):
    """A record's reference to its rows: the digest of the table, and the number of its rows."""

    table: str
    rows: int

    @property
    def file(self) -> str:
        """The table's name, in the record's folder."""
        return f"{FIRST}{self.table[:12]}{LAST}"


class Divided(NamedTuple):
    """A record's content as its file holds it, and the table beside it; None for one that holds its rows itself."""

    content: Content
    table: bytes | None
    file: str | None


class Whole(NamedTuple):
    """A record's content with its rows, and the bytes of text that its table unpacks to."""

    content: Content
    unpacked: int


def divided(content: Content) -> Divided:
    """Return a sealed record in the two parts in which it is written."""
    rows = content[EVIDENCE].get(TRIALS)
    if not isinstance(rows, list) or len(rows) <= MOST_ROWS:
        return Divided(content, None, None)
    columns = plain(_Columns.of(rows).written())
    text = json.dumps(columns, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    table = lzma.compress(text.encode(), preset=6)
    reference = Reference(table=sha256_bytes(table), rows=len(rows))
    evidence = {**content[EVIDENCE], TRIALS: reference._asdict()}
    return Divided({**content, EVIDENCE: evidence}, table, reference.file)


def reference_of(raw: bytes) -> Reference | None:
    """Return the reference to the table in a record's file; None where the record holds its rows, or is not readable."""
    if _MARK not in raw:  # most records: they are parsed once
        return None
    try:
        return _reference(from_json(raw))
    except ValueError:
        return None


def whole(content: Content, table: bytes | None) -> Whole:
    """Return a record's content with its rows.

    Args:
        content: The content of the record's file.
        table: The bytes of the file beside it; None where it is not there.

    Raises:
        ValueError: The table is missing, or is not the one that the record names.
    """
    reference = _reference(content)
    if reference is None:
        return Whole(content, 0)
    if table is None:
        raise ValueError(f"{reference.file}, which holds the trials, is not beside it: bring it back from git")
    if sha256_bytes(table) != reference.table:
        raise ValueError(f"{reference.file}, which holds the trials, was edited: bring it back from git")
    text = _unpacked(table)
    rows = _rows_of(from_json(text))
    if len(rows) != reference.rows:
        raise ValueError(f"{reference.file} holds {len(rows)} trials, and not {reference.rows}")
    return Whole({**content, EVIDENCE: {**content[EVIDENCE], TRIALS: rows}}, len(text))


def _reference(content: Any) -> Reference | None:
    found = content.get(EVIDENCE) if isinstance(content, dict) else None
    stands = found.get(TRIALS) if isinstance(found, dict) else None
    if not isinstance(stands, dict):
        return None
    table, rows = stands.get("table"), stands.get("rows")
    # The digest becomes a file's name: nothing but a digest is allowed.
    if not _DIGEST.fullmatch(str(table)) or not isinstance(rows, int):
        raise ValueError("its reference to the trials names no table")
    return Reference(str(table), rows)


def _unpacked(table: bytes) -> bytes:
    """Return a table's text; a text that would not fit into memory is refused before it is unpacked."""
    try:
        reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)
        text = reader.decompress(table, max_length=MOST_BYTES)
    except lzma.LZMAError as error:
        raise ValueError(f"the table of trials is not readable: {error}") from None
    if not reader.eof:
        raise ValueError(f"the table of trials is cut off, or has more than {MOST_BYTES} bytes")
    return text


# --- columns --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """The values of one key.

    Attributes:
        values: The values in the order of their rows; nested columns where all are mappings.
        at: The numbers of the rows that have the key; None for all.
    """

    values: list[Any] | _Columns
    at: list[int] | None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], key: str) -> _Column:
        """Return the column of a key that at least one row has."""
        at = [nr for nr, row in enumerate(rows) if key in row]
        values = [rows[nr][key] for nr in at]
        has_columns = all(isinstance(value, Mapping) for value in values)
        return cls(_Columns.of(values) if has_columns else values, None if len(at) == len(rows) else at)

    @classmethod
    def read(cls, found: Any) -> _Column:
        """Return the column of a mapping from `written`."""
        return cls(_Columns.read(found["in"]) if "in" in found else found["of"], found.get("at"))

    def written(self) -> Content:
        """Return the column as JSON has it: `of` holds values, `in` columns, and `at` the numbers of rows."""
        values = {"in": self.values.written()} if isinstance(self.values, _Columns) else {"of": self.values}
        return values if self.at is None else {"at": self.at, **values}


@dataclass(frozen=True)
class _Columns:
    """Rows by key."""

    rows: int
    columns: dict[str, _Column]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> _Columns:
        """Return the columns of rows."""
        return cls(len(rows), {key: _Column.of(rows, key) for key in sorted({key for row in rows for key in row})})

    @classmethod
    def read(cls, found: Any) -> _Columns:
        """Return the columns of a mapping from `written`."""
        return cls(int(found["rows"]), {key: _Column.read(column) for key, column in found["columns"].items()})

    def written(self) -> Content:
        """Return the columns as JSON has them."""
        return {"rows": self.rows, "columns": {key: column.written() for key, column in self.columns.items()}}

    @property
    def cells(self) -> int:
        """The number of mappings that `expanded` makes."""
        return self.rows + sum(one.values.cells for one in self.columns.values() if isinstance(one.values, _Columns))

    def expanded(self) -> list[Row]:
        """Return the rows."""
        rows: list[Row] = [{} for _ in range(self.rows)]
        for key, column in self.columns.items():
            values = column.values.expanded() if isinstance(column.values, _Columns) else column.values
            for nr, value in zip(range(self.rows) if column.at is None else column.at, values, strict=True):
                rows[nr][key] = value
        return rows


def _rows_of(found: Any) -> list[Row]:
    """Return the rows of a table's text.

    Raises:
        ValueError: The text is not of that form, or would take more memory than its size allows.
    """
    try:
        columns = _Columns.read(found)
        if columns.cells > MOST_VALUES:
            raise ValueError(f"the table of trials has more than {MOST_VALUES} values")
        return columns.expanded()
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as hole:
        raise ValueError(f"the table of trials is not readable: {type(hole).__name__}: {hole}") from None
