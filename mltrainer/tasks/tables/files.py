"""Tables from files: CSV, JSON lines, Parquet and workbooks, read strictly; nothing is skipped or guessed silently."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.checkpointing.inference_script import (
    SAMPLE,
    InvalidInputError,
    as_text,
    decoded,
    delimiter_of,
    flattened,
    names_of,
    read_sheet,
    wide_encoding,
    without_lines,
)
from mltrainer.errors import InputError
from mltrainer.tasks.content import WHOLE_FILE, Table, listed
from mltrainer.tasks.tables import polars_csv, polars_jsonl

if TYPE_CHECKING:
    from mltrainer.tasks.tables.columns import Cells

BOM = b"\xef\xbb\xbf"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SHOWN = 5  # faulty rows named in a message
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
FAST_FROM = 1 << 20  # bytes; below, importing the fast reader takes longer than reading


def decode(data: bytes, place: str) -> str:
    """Return a text file's content; a byte order mark is dropped.

    Raises:
        InputError: The file is empty, is not UTF-8 or holds NUL bytes; the byte's offset is named.
    """
    start = next((len(mark) for mark in (BOM, *UTF16) if data.startswith(mark)), 0)
    if not data[start:].strip():
        raise InputError("the file is empty", where=place, hint=WHOLE_FILE)
    nul = -1 if wide_encoding(data) else data.find(b"\0")
    if nul >= 0:
        raise InputError(
            expected="a text file", found=f"a NUL byte at byte offset {nul}", where=f"{place}:{_line(data, nul)}", hint=WHOLE_FILE
        )
    try:
        return decoded(data)
    except UnicodeDecodeError as error:
        is_utf8 = error.encoding == "utf-8"
        offset = error.start + (start if is_utf8 else 0)
        raise InputError(
            f"{'not UTF-8' if is_utf8 else 'neither UTF-8 nor Windows-1252'}: byte 0x{data[offset]:02x} at byte offset {offset}",
            where=f"{place}:{_line(data, offset)}",
            hint="save the file as UTF-8 (for cp1251: iconv -f cp1251 -t utf-8)",
        ) from error


def _encoding_notes(data: bytes, place: str) -> list[str]:
    """Return a note on the encoding of a text file that is not UTF-8; none for UTF-8."""
    if (wide := wide_encoding(data)) is not None:
        return [f"{place} is {wide.upper()}"]
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"{_line(data, error.start)} holds the byte 0x{data[error.start]:02x}"
        return [f"{place} is not UTF-8, line {found}: it was read as Windows-1252"]
    return []


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def read_csv(data: bytes, place: str, header: bool = True, skip_lines: int = 0) -> Table:
    """Return the table of a CSV file; its delimiter is found from its first lines.

    Args:
        data: The file's bytes.
        place: The file's path in messages.
        header: Whether the first record holds the columns' names; else they are `column_1`, `column_2`, ...
        skip_lines: Number of lines above the table.

    Raises:
        InputError: Ragged rows, an unclosed quote, no rows, or not a text file; with line numbers.
    """
    is_large = len(data) >= FAST_FROM
    if is_large and not skip_lines and (table := _fast_table(data.removeprefix(BOM), place, header)) is not None:
        return table
    text, notes = decode(data, place), _encoding_notes(data, place)
    text = without_lines(text, skip_lines)
    # Encoded again, as the fast reader reads UTF-8 alone.
    if is_large and (notes or skip_lines) and (table := _fast_table(text.encode(), place, header, skip_lines)) is not None:
        return replace(table, notes=[*notes, *table.notes])
    lines = list(_records(text, place, header, skip_lines))
    if not lines:
        raise InputError(f"no line is left below the {skip_lines} that are skipped", where=place, hint="skip fewer lines")
    names = _names(lines[0][1], header)
    body = lines[1:] if header else lines
    _refuse_ragged(names, body, place)
    if not body:
        raise InputError(f"a header with {len(names)} columns, but no rows", where=place, hint=WHOLE_FILE)
    notes += _same_names(lines[0][1]) if header else []
    return replace(_table(names, [cells for _, cells in body], [line for line, _ in body], place), notes=notes)


def _fast_table(data: bytes, place: str, header: bool, skipped: int = 0) -> Table | None:
    """Return the table that polars reads, or None where the file must be checked record by record."""
    head = data[: data.find(b"\n") + 1].decode("utf-8", "replace")
    # An open quote means that the header continues in the next line.
    if not head.strip() or head.count('"') % 2:
        return None
    # No character of UTF-8 has more than 4 bytes, so this holds the whole sample.
    delimiter = delimiter_of(data[: 4 * SAMPLE].decode("utf-8", "replace"), header)
    first = next(csv.reader([head], delimiter=delimiter))
    names = _names(first, header)
    frame = polars_csv.frame_of(data, names, delimiter, header)
    if frame is None:
        return None
    cells = polars_csv.stripped(frame) if polars_csv.may_have_blanks(data) else {one.name: one for one in frame.get_columns()}
    # Lines are counted when a message needs them: with quoted newlines that takes the strict reader.
    return Table(cells, lambda: _line_numbers(data, place, header, skipped), place, notes=_same_names(first) if header else [])


def _line_numbers(data: bytes, place: str, header: bool, skipped: int) -> np.ndarray:
    lines = [line for line, _ in _records(decode(data, place), place, header, skipped)]
    return np.array(lines[1:] if header else lines, dtype=np.int64)


def _names(first: list[str], header: bool) -> list[str]:
    """Return the columns' names by a file's first record, which holds them or not."""
    return names_of(first if header else [""] * len(first))


def _records(text: str, place: str, header: bool, skipped: int) -> Any:
    """Yield (line number, cells) of each record that is not blank, below a number of skipped lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text, header), strict=True)
    begins = skipped + 1
    try:
        for cells in reader:
            if cells:
                yield begins, cells
            # `line_num` is where a record ends, and a quoted cell may hold newlines: the next one begins after it.
            begins = skipped + reader.line_num + 1
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        what = "a quote that opens in this record is never closed" if unclosed else f"not readable as CSV: {error}"
        raise InputError(
            what, where=f"{place}:{begins}", hint="fix this record; a quote inside a cell is written twice"
        ) from error


def _same_names(header: list[str]) -> list[str]:
    """Return a note on the columns renamed because the header has their names already."""
    called = zip(header, names_of(header), strict=True)
    renamed = [
        f"{name!r} for {cell.strip()!r} in column {nr}"
        for nr, (cell, name) in enumerate(called, 1)
        if cell.strip() not in ("", name)
    ]
    return [f"the header has names twice, which were renamed: {', '.join(renamed)}"] if renamed else []


def _refuse_ragged(header: list[str], body: list[tuple[int, list[str]]], place: str) -> None:
    bad = [(line, len(cells)) for line, cells in body if len(cells) != len(header)]
    if not bad:
        return
    shown = listed([f"line {line} has {count}" for line, count in bad], SHOWN)
    raise InputError(
        f"{len(bad)} of {len(body)} rows",
        expected=f"the header's {len(header)} cells",
        found=shown,
        where=f"{place}:{bad[0][0]}",
        hint=_hint_for_ragged(header, body, bad, Path(place).name),
    )


def _hint_for_ragged(header: list[str], body: list[tuple[int, list[str]]], bad: list[tuple[int, int]], name: str) -> str:
    """Return the hint for rows of another width than the header's, given as their lines and numbers of cells."""
    first, width = bad[0][0], len(body[-1][1])
    if all(count == len(header) + 1 for _, count in bad) and len(bad) == len(body):
        return "where the header has a name too few, write it, such as that of the row names; where it is a title: --skip-lines 1"
    if len(bad) > len(body) / 2:
        above = next(line for line, cells in body if len(cells) == width) - 1
        return f"where a title is above line {above + 1}: --skip-lines {above} at init, or data: {{skip_lines: {above}}}"
    if [line for line, _ in bad] == [line for line, _ in body[-len(bad) :]]:
        return f"where these are no rows: head -n {first - 1} {shlex.quote(name)} is the file without them"
    return "fix these rows; a cell that holds the delimiter must be quoted"


def _table(header: list[str], rows: list[list[str]], lines: Sequence[int], place: str) -> Table:
    cells: dict[str, Cells] = {
        name: text_array(list(column)) for name, column in zip(header, zip(*rows, strict=True), strict=True)
    }
    return Table(cells, lambda: np.array(lines, dtype=np.int64), place)


def text_array(cells: list[str]) -> np.ndarray:
    """Return cells as an object array, without surrounding blanks."""
    # Filled in place: np.array() would make each cell as wide as the longest.
    array = np.empty(len(cells), dtype=object)
    array[:] = [cell.strip() for cell in cells]
    return array


def read_jsonl(data: bytes, place: str) -> Table:
    """Return the table of a file with one JSON object per line; a key that a line lacks is a missing value.

    An object in a line becomes columns such as `place.city`, a list the text of its JSON.

    Raises:
        InputError: A line is no object; the message has its number.
    """
    if len(data) >= FAST_FROM and (columns := polars_jsonl.cells_of(data.removeprefix(BOM))) is not None:
        return Table(columns, lambda: np.array([nr for nr, _ in _numbered_lines(data, place)]), place)
    lines = json_lines(data, place)
    return _of_objects([*lines], [*lines.values()], place)


def json_lines(data: bytes, place: str) -> dict[int, Any]:
    """Return the JSON values of a file with one a line, by the number of the line; blank lines are left out.

    Raises:
        InputError: A line is no JSON; the message has its number.
    """
    return {nr: _parsed(line, f"{place}:{nr}") for nr, line in _numbered_lines(data, place)}


def _numbered_lines(data: bytes, place: str) -> list[tuple[int, str]]:
    # Not splitlines(), which also parts at U+2028 and others that a JSON text may hold.
    return [(nr, line) for nr, line in enumerate(decode(data, place).split("\n"), 1) if line.strip()]


def read_json(data: bytes, place: str) -> Table:
    """Return the table of a file with a JSON list of objects, as `read_jsonl` does; rows are numbered from 1.

    Raises:
        InputError: The file is no such list.
    """
    rows = _parsed(decode(data, place), place)
    if not isinstance(rows, list) or not rows:
        raise InputError("a JSON list of objects was expected, one for each row", where=place, hint=WHOLE_FILE)
    return _of_objects(range(1, len(rows) + 1), rows, place)


def _parsed(text: str, where: str) -> Any:
    try:
        return JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not readable as JSON: {error}", where=where, hint=WHOLE_FILE) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; json alone silently keeps the last of equal keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        raise ValueError(f"duplicate keys {', '.join(map(repr, twice))}")
    return found


JSON = json.JSONDecoder(object_pairs_hook=_object)  # one for all lines: making it takes as long as reading a short one


def _of_objects(numbers: Sequence[int], rows: Sequence[Any], place: str) -> Table:
    """Return JSON objects as the rows of a table.

    Raises:
        InputError: A row is no object, or holds half a character, which an escape in JSON can write, and no text file can hold.
    """
    objects = []
    for number, row in zip(numbers, rows, strict=True):
        if not isinstance(row, dict):
            hint = "write each row as an object with the columns' names as keys"
            raise InputError(expected="a JSON object", found=type(row).__name__, where=f"{place}:{number}", hint=hint)
        cells = {name: as_text(value) for name, value in flattened(row).items()}
        if half := next((name for name, cell in cells.items() if HALF_CHARACTER.search(name + cell)), None):
            what = f"{half!r} holds half a character (a lone surrogate)"
            raise InputError(what, where=f"{place}:{number}", hint="fix this text, or remove it")
        objects.append(cells)
    names = list(dict.fromkeys(name for cells in objects for name in cells))
    if not names:
        raise InputError("no row has a value", where=place, hint=WHOLE_FILE)
    return _table(names, [[cells.get(name, "") for name in names] for cells in objects], numbers, place)


def read_parquet(data: bytes, place: str) -> Table:
    """Return the table of a Parquet file; nulls are missing values.

    Raises:
        InputError: The file is damaged or empty, or it holds nothing but nested values.
    """
    import polars

    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        raise InputError(f"not readable as Parquet: {error}", where=place, hint=WHOLE_FILE) from error
    if frame.height == 0:
        raise InputError(f"a table with {frame.width} columns, but no rows", where=place, hint=WHOLE_FILE)
    count = frame.height
    nested = {name: _named(kind) for name, kind in frame.schema.items() if kind.is_nested()}
    if len(nested) < frame.width:
        frame = frame.drop(nested)
    notes = [
        f"column {name!r} holds {kind}, and is left out: write its parts as columns of their own, of numbers or text, to use it"
        for name, kind in nested.items()
    ]
    # Dropped one by one: a column's memory is free again before the next one is converted.
    columns = {name: _column(frame.drop_in_place(name), f"{place}, column {name!r}") for name in frame.columns}
    return Table(columns, lambda: np.arange(1, count + 1), place, notes=notes)


def _column(column: Any, where: str) -> Any:
    """Return numbers as float64, NaN for nulls, and anything else as text: dates in ISO form, booleans in lower case."""
    import polars

    kind = column.dtype
    if kind.is_integer() and column.ne_missing(column.cast(polars.Float64).cast(kind, strict=False)).any():
        return column.cast(polars.String).fill_null("")  # such as an id of 64 bits, of which a float64 loses digits
    if kind.is_numeric():
        # Copied, as polars' own memory is read-only.
        return column.cast(polars.Float64).fill_null(np.nan).to_numpy().copy()
    if kind.is_nested() or kind in (polars.Binary, polars.Object):
        hint = "convert the column, or name it in data.ignore"
        raise InputError(expected="numbers, text, dates or booleans", found=_named(kind), where=where, hint=hint)
    if kind in (polars.String, polars.Categorical, polars.Enum, polars.Boolean, polars.Null):
        return column.cast(polars.String).fill_null("").str.strip_chars()
    return text_array(["" if cell is None else str(cell) for cell in column.to_list()])


def _named(kind: Any) -> str:
    return str(kind).lower()


CHOOSE = "--sheet NAME at init, or data.sheet, chooses another one"
INSTALL = "pip install 'mltrainer[excel]'"


def read_workbook(data: bytes, place: str, header: bool = True, skip_lines: int = 0, sheet: str | None = None) -> Table:
    """Return the table of a workbook's sheet, whose empty rows and columns are left out.

    Args:
        data: The workbook.
        place: The workbook's path in messages.
        header: Whether the first row holds the columns' names; else they are `column_1`, `column_2`, ...
        skip_lines: Number of rows of the sheet above the table.
        sheet: The sheet's name; None: the first one.

    Raises:
        InputError: The data is no workbook, it has no such sheet, or the sheet holds no rows; or fastexcel is not installed.
    """
    sheets, cells = sheet_cells(data, place, sheet, skip_lines)
    filled = [nr for nr, row in enumerate(cells.iter_rows()) if any(row)]
    cells, body = cells[filled], filled[int(header) :]
    if not body:
        what = f"sheet {sheet or sheets[0]!r} holds no rows; the workbook has {', '.join(map(repr, sheets))}"
        raise InputError(what, where=place, hint=CHOOSE)
    names = names_of(list(cells.row(0)) if header else [""] * cells.width)
    columns = {name: column[int(header) :] for name, column in zip(names, cells, strict=True)}
    return Table(columns, lambda: np.array(body) + skip_lines + 1, place, notes=_other_sheets(sheets, sheet))


def sheet_cells(data: bytes, place: str, sheet: str | None, skip_lines: int = 0) -> tuple[list[str], Any]:
    """Return the names of a workbook's sheets, and the cells of one of them below some rows, as a polars frame of text.

    Raises:
        InputError: The data is no workbook, or has no such sheet; or fastexcel is not installed.
    """
    try:
        sheets, cells = read_sheet(data, sheet, skip_lines)
    except InvalidInputError as error:
        is_missing = isinstance(error.__cause__, ImportError)
        what = str(error).partition(":")[0] if is_missing else str(error)
        hint = INSTALL if is_missing else CHOOSE if "no sheet" in what else WHOLE_FILE
        raise InputError(what, where=place, hint=hint) from error
    if sheet is not None and sheet not in sheets:
        what = f"there is no sheet {sheet!r}; the workbook has {', '.join(map(repr, sheets))}"
        raise InputError(what, where=place, hint=CHOOSE)
    return sheets, cells


def _other_sheets(sheets: list[str], sheet: str | None) -> list[str]:
    read = sheet or sheets[0]
    others = [name for name in sheets if name != read]
    return [f"sheet {read!r} was read; the workbook has also {', '.join(map(repr, others))}"] if others else []
