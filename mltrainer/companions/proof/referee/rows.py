"""The rows of a table as its file holds them, and their division into two parts that have no row in common."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mltrainer.configs.project import Data
from mltrainer.errors import InputError

LINES = (".jsonl", ".ndjson")
TEXTS = (".csv", ".tsv", *LINES)
DELIMITERS = b",;\t|"


@dataclass(frozen=True)
class Table:
    """A table as bytes.

    Attributes:
        path: The file.
        header: The first line with the columns' names; empty for JSON lines.
        rows: Each row with its end of line.
    """

    path: Path
    header: bytes
    rows: list[bytes]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column.

        Raises:
            InputError: There is no such column, or a row does not have it.
        """
        if _has_lines(self.path):
            return [self._entry(row, name, place) for place, row in enumerate(self.rows, 1)]
        delimiter = chr(max(DELIMITERS, key=self.header.count))
        names, *cells = csv.reader([one.decode("utf-8-sig") for one in (self.header, *self.rows)], delimiter=delimiter)
        names = [one.strip() for one in names]
        if name not in names:
            raise InputError.unknown("column", name, names, where=str(self.path), hint=f"name a column of {self.path.name}")
        place = names.index(name)
        if short := next((number for number, row in enumerate(cells, 2) if len(row) <= place), None):
            raise InputError(f"row {short} has no cell of column {name!r}", where=str(self.path), hint="add the cell")
        return [row[place] for row in cells]

    def _entry(self, row: bytes, name: str, place: int) -> str:
        try:
            return str(json.loads(row)[name])
        except (ValueError, KeyError, TypeError) as error:
            hint = f"give every row a value of {name!r}"
            raise InputError(f"no JSON object with {name!r}", where=f"{self.path}:{place}", hint=hint) from error


def table(path: Path) -> Table:
    """Return a table's rows; quoted cells may hold line ends.

    Raises:
        InputError: There is no such file, it is of another kind, or it has no two rows.
    """
    if path.suffix.lower() not in TEXTS:
        raise InputError("expected a table as text", where=str(path), hint=f"give one of {', '.join(TEXTS)}")
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        hint = "name a table that you can read; a path is relative to the current folder"
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    if lines and not lines[-1].endswith((b"\n", b"\r")):
        lines[-1] += b"\n"  # else it would join the row that comes after it in another file
    rows = [row for row in _records(lines, path) if row.strip()]
    header = b"" if _has_lines(path) or not rows else rows.pop(0)
    if len(rows) < 2:
        hint = "name the table of all rows"
        raise InputError(f"{len(rows)} rows; at least 2 are needed, one for each part", where=str(path), hint=hint)
    return Table(path, header, rows)


def row_count(path: Path, data: Data) -> int | None:
    """Return the number of rows that a config should read from a file of text; None: it is of another kind.

    Raises:
        InputError: It cannot be read as a table.
    """
    if path.suffix.lower() not in TEXTS:
        return None
    count = len(table(path).rows)
    # `table` takes the first line for the header.
    return count if _has_lines(path) else count - data.skip_lines + (not data.header)


def _has_lines(path: Path) -> bool:
    """Return True for a file of JSON lines, which has no header and no quoted line ends."""
    return path.suffix.lower() in LINES


def _records(lines: Sequence[bytes], path: Path) -> Iterator[bytes]:
    """Yield the rows: a line whose quotes are not closed goes on in the next one."""
    open_ = b""
    for line in lines:
        open_ += line
        if _has_lines(path) or open_.count(b'"') % 2 == 0:
            yield open_
            open_ = b""
    if open_:
        raise InputError("a quote is not closed in its last row", where=str(path), hint="close it, or bring the whole file")


def held_places(rows: Table, share: float, seed: int, group: str | None = None, time: str | None = None) -> set[int]:
    """Return the places of the rows that the referee keeps: whole groups or equal rows as drawn, or the latest rows.

    Args:
        rows: The table.
        share: The share of the rows to keep, above 0 and below 1.
        seed: The seed of the draw.
        group: The column whose rows of equal value stay together; None: equal rows stay together.
        time: The column of dates or numbers whose latest rows are kept; rows of one moment stay together.

    Raises:
        InputError: One part would have no row, or a cell of `time` is no date and no number.
    """
    units: Sequence[Hashable]
    order: list[Hashable]
    if time is not None:
        units = moments = [_moment(cell, rows.path, time) for cell in rows.column(time)]
        order = [*sorted(set(moments), reverse=True)]
    else:
        units = [row.rstrip(b"\r\n") for row in rows.rows] if group is None else rows.column(group)
        order = list(dict.fromkeys(units))
        random.Random(seed).shuffle(order)
    sizes = Counter(units)
    kept, count, wanted = set[Hashable](), 0, share * len(units)
    for unit in order:
        if kept and abs(count + sizes[unit] - wanted) > abs(count - wanted):
            break
        kept.add(unit)
        count += sizes[unit]
    if count == len(units):
        what = f"column {group or time!r}" if group or time else "equal rows"
        message = f"one value of {what} has all rows: no part of them can be held out"
        raise InputError(message, where=str(rows.path), hint="bring a table whose rows differ there, or name another column")
    return {place for place, unit in enumerate(units) if unit in kept}


def _moment(cell: str, path: Path, column: str) -> tuple[int, float]:
    """Return a number or a date as something that can be ordered."""
    try:
        return 0, float(cell)
    except ValueError:
        pass
    try:
        return 1, datetime.fromisoformat(cell.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        hint = "write dates as 2026-11-29 or 2026-11-29T18:00:00"
        raise InputError(f"{cell!r} in column {column!r} is no number and no date", where=str(path), hint=hint) from error


def shared_rows(one: Table, other: Table) -> int:
    """Return the number of rows of one table that another one has, too, byte for byte."""
    known = {row.rstrip(b"\r\n") for row in other.rows}
    return sum(row.rstrip(b"\r\n") in known for row in one.rows)
