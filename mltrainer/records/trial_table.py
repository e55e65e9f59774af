"""The trials of a long search beside its record: one compressed file of columns, named by its digest.

In the record a mapping with the number of rows and the file's digest then stands where the rows of a shorter search stand. The
seal is of the whole record, with the rows in it: it holds for both parts together.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mltrainer.workspace import MOST_BYTES, MOST_VALUES, from_json, plain, sha256_bytes

MOST_ROWS = 1000  # of a record that holds its trials itself: more than any search had whose record must keep its bytes
EVIDENCE, TRIALS = "evidence", "trials"
FIRST, LAST = "trials-", ".json.xz"  # of a file's name
_MARK = b'"table":'  # in the bytes of every record that has one
_DIGEST = re.compile("[0-9a-f]{64}")
_MEMORY = 64 << 20  # bytes that unpacking may take, beside what it gives

Row = dict[str, Any]
Content = dict[str, Any]


class Reference(NamedTuple):
    """What stands in a record for its rows: the digest of the table, and how many rows it has."""

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
    text = json.dumps(plain(_columns(rows)), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    table = lzma.compress(text.encode(), preset=6)
    reference = Reference(table=sha256_bytes(table), rows=len(rows))
    evidence = {**content[EVIDENCE], TRIALS: reference._asdict()}
    return Divided({**content, EVIDENCE: evidence}, table, reference.file)


def reference_of(raw: bytes) -> Reference | None:
    """Return the reference to its table in a record's file; None where it holds its rows, or is not readable."""
    if _MARK not in raw:  # most records: they are parsed once
        return None
    try:
        return _reference(from_json(raw))
    except ValueError:
        return None


def whole(content: Content, table: bytes | None) -> Whole:
    """Return a record's content with its rows.

    Args:
        content: Of its file.
        table: The file beside it; None where it is not there.

    Raises:
        ValueError: It is not there, or not what the record says.
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
    # The digest becomes a file's name: nothing but a digest may stand there.
    if not _DIGEST.fullmatch(str(stands.get("table"))) or not isinstance(stands.get("rows"), int):
        raise ValueError("what stands for its trials names no table")
    return Reference(stands["table"], stands["rows"])


def _unpacked(table: bytes) -> bytes:
    """Return a table's text; what would not fit into memory is refused before it is there."""
    try:
        reader = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MEMORY)
        text = reader.decompress(table, max_length=MOST_BYTES)
    except lzma.LZMAError as error:
        raise ValueError(f"the table of trials is not readable: {error}") from None
    if not reader.eof:
        raise ValueError(f"the table of trials is cut off, or has more than {MOST_BYTES} bytes")
    return text


# --- columns --------------------------------------------------------------------------------------


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return rows by key: `of` holds the values, and `at` the numbers of the rows that have the key, where not all do.

    Mappings in every row that has the key are columns in turn, `in`.
    """
    found: dict[str, Any] = {"rows": len(rows), "columns": {}}
    for key in sorted({key for row in rows for key in row}):
        at = [nr for nr, row in enumerate(rows) if key in row]
        values = [rows[nr][key] for nr in at]
        column: dict[str, Any] = {} if len(at) == len(rows) else {"at": at}
        column |= {"in": _columns(values)} if all(isinstance(value, Mapping) for value in values) else {"of": values}
        found["columns"][key] = column
    return found


def _rows_of(found: Any) -> list[Row]:
    """Return the rows of `_columns`.

    Raises:
        ValueError: It is not of that form, or would take more memory than it has text.
    """
    try:
        if _cells(found) > MOST_VALUES:
            raise ValueError(f"the table of trials has more than {MOST_VALUES} values")
        return _rows(found)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as hole:
        raise ValueError(f"the table of trials is not readable: {type(hole).__name__}: {hole}") from None


def _cells(found: Any) -> int:
    """Return the number of mappings that `_rows` makes."""
    return int(found["rows"]) + sum(_cells(column["in"]) for column in found["columns"].values() if "in" in column)


def _rows(found: Any) -> list[Row]:
    rows: list[Row] = [{} for _ in range(found["rows"])]
    for key, column in found["columns"].items():
        values = _rows(column["in"]) if "in" in column else column["of"]
        for nr, value in zip(column.get("at", range(len(rows))), values, strict=True):
            rows[nr][key] = value
    return rows
