"""Tables from text files: CSV and JSON lines, read strictly; nothing is skipped or guessed silently."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mltrainer.checkpointing.inference_script import (
    SAMPLE,
    decoded,
    delimiter_of,
    flattened,
    names_of,
    wide_encoding,
    without_lines,
)
from mltrainer.errors import InputError
from mltrainer.tasks.content import WHOLE_FILE, Table
from mltrainer.tasks.tables import polars_csv, polars_jsonl

if TYPE_CHECKING:
    from mltrainer.tasks.content import Cells

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
            f"NUL byte at byte offset {nul}; a text file was expected", where=f"{place}:{_line(data, nul)}", hint=WHOLE_FILE
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
    return [f"the header has names twice, which were told apart: {', '.join(renamed)}"] if renamed else []


def _refuse_ragged(header: list[str], body: list[tuple[int, list[str]]], place: str) -> None:
    bad = [(line, len(cells)) for line, cells in body if len(cells) != len(header)]
    if not bad:
        return
    shown = ", ".join(f"line {line} has {count}" for line, count in bad[:SHOWN])
    more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    raise InputError(
        f"{len(bad)} of {len(body)} rows do not have the header's {len(header)} cells: {shown}{more}",
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
        return f"where a title stands above line {above + 1}: --skip-lines {above} at init, or data: {{skip_lines: {above}}}"
    if [line for line, _ in bad] == [line for line, _ in body[-len(bad) :]]:
        return f"where these are no rows: head -n {first - 1} {shlex.quote(name)} is the file without them"
    return "fix these rows; a cell that holds the delimiter must be quoted"


def _table(header: list[str], rows: list[list[str]], lines: list[int], place: str) -> Table:
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
    numbered = _numbered_lines(data, place)
    objects = [_json_object(line, f"{place}:{nr}") for nr, line in numbered]
    names = list(dict.fromkeys(name for item in objects for name in item))
    if not names:
        raise InputError("no line has a value", where=place, hint=WHOLE_FILE)
    rows = [[item.get(name, "") for name in names] for item in objects]
    return _table(names, rows, [nr for nr, _ in numbered], place)


def read_json(data: bytes, place: str) -> Table:
    """Return the table of a file with a JSON list of objects, as `read_jsonl` does; rows are numbered from 1.

    Raises:
        InputError: The file is no such list.
    """
    try:
        rows = json.loads(decode(data, place))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not readable as JSON: {error}", where=place, hint=WHOLE_FILE) from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InputError("a JSON list of objects was expected, one for each row", where=place, hint=WHOLE_FILE)
    objects = [_cells(row, f"{place}:{number}") for number, row in enumerate(rows, 1)]
    names = list(dict.fromkeys(name for item in objects for name in item))
    cells = [[item.get(name, "") for name in names] for item in objects]
    return _table(names, cells, list(range(1, len(rows) + 1)), place)


def _numbered_lines(data: bytes, place: str) -> list[tuple[int, str]]:
    # Not splitlines(), which also parts at U+2028 and others that a JSON text may hold.
    return [(nr, line) for nr, line in enumerate(decode(data, place).split("\n"), 1) if line.strip()]


def _json_object(line: str, where: str) -> dict[str, str]:
    try:
        # json alone silently keeps the last of equal keys.
        value = json.loads(line, object_pairs_hook=lambda pairs: _unique(pairs, where))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not readable as JSON: {error}", where=where) from error
    if not isinstance(value, dict):
        raise InputError(f"a JSON object was expected, found {type(value).__name__}", where=where)
    return _cells(value, where)


def _unique(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        raise InputError(f"duplicate keys {', '.join(map(repr, twice))}", where=where)
    return result


def _cells(value: dict[str, Any], where: str) -> dict[str, str]:
    """Return the cells of a JSON object.

    Raises:
        InputError: A text holds half a character, which an escape in JSON can write, and no text file can hold.
    """
    found = {name: _cell(item) for name, item in flattened(value).items()}
    half = next((name for name, cell in found.items() if HALF_CHARACTER.search(name + cell)), None)
    if half is not None:
        raise InputError(f"{half!r} holds half a character (a lone surrogate)", where=where, hint="fix this text, or remove it")
    return found


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
