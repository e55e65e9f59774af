"""Lines above a table's header, such as a title or `sep=;`, which `init` leaves out by `data.skip_lines`."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.inference_script import (
    DELIMITERS,
    SAMPLE,
    SHEETS,
    InvalidInputError,
    as_number,
    decoded,
    suffix_of,
    unpacked,
    wide_encoding,
)
from mltrainer.tasks.tables.workbooks import sheet_cells
from mltrainer.workspace import machine_faults

Records = list[tuple[int, list[str]]]

LOOKED_AT = 500  # lines; chosen by us: archives of instruments have a hundred lines of remarks


def place_in_file(path: Path, sheet: str | None = None) -> dict[str, Any]:
    """Return the keys of `data` for the place of a table in its file: lines above it, 0 where that is unclear, and the sheet.

    Args:
        path: A CSV file or a workbook.
        sheet: The sheet's name; None: the first one.

    Raises:
        InputError: The workbook or the sheet cannot be read.
    """
    if suffix_of(path) not in SHEETS:
        text = _first_text(path)
        return {"skip_lines": _lines_above(max((_records(text, mark) for mark in DELIMITERS), key=_steadiness))}
    with machine_faults(path.name):
        data = path.read_bytes()
    sheets, cells = sheet_cells(data, path.name, sheet)
    rows = [(nr, list(row)) for nr, row in enumerate(cells.head(LOOKED_AT).iter_rows(), 1) if any(row)]
    return {"skip_lines": _lines_above(rows), "sheet": sheet or sheets[0]}


def _first_text(path: Path) -> str:
    """Return a file's first lines; none of a file that is no text, which its reader refuses."""
    with machine_faults(path.name), path.open("rb") as file:
        head = file.read(SAMPLE) if path.suffix != ".gz" else file.read()
    try:
        head = unpacked(head)[:SAMPLE]
        return decoded(head if wide_encoding(head) else head[: head.rfind(b"\n") + 1])
    except (OSError, ValueError, InvalidInputError):
        return ""


def _records(text: str, delimiter: str) -> Records:
    """Return the line number and the cells of each record that is not blank."""
    reader, found, begins = csv.reader(text.splitlines(keepends=True)[:LOOKED_AT], delimiter=delimiter), [], 1
    for cells in reader:
        if cells:
            found.append((begins, [cell.strip() for cell in cells]))
        begins = reader.line_num + 1
    return found


def _steadiness(records: Records) -> tuple[int, int]:
    """Return the number of records of the most frequent width, where that is not 1, and this width."""
    widths = Counter(len(cells) for _, cells in records)
    width = max(widths, key=lambda size: widths[size], default=1)
    return (widths[width], width) if width > 1 else (0, 1)


def _lines_above(records: Records) -> int:
    """Return the number of lines above the first record that is filled like a header, where all of them can be a title's."""
    many, width = _steadiness(records)
    above = list(itertools.takewhile(lambda one: len(one[1]) != width or not _is_filled(one[1], width), records))
    if 2 * many < len(records) or not 0 < len(above) < len(records):
        return 0
    line, header = records[len(above)]
    first = above[0][1]
    # A single line of one cell less may be a header that lacks a name, as R writes it above the names of rows.
    lacks_name = len(above) == 1 and len(first) == width - 1 > 1 and all(first) and not first[0].startswith("#")
    return line - 1 if _are_names(header) and not lacks_name else 0


def _is_filled(cells: list[str], width: int) -> bool:
    return 2 * len([*filter(None, cells)]) > width


def _are_names(cells: list[str]) -> bool:
    """Return True if a record can hold a table's names: they differ, the first is a word, and none has a fraction."""
    named = [cell for cell in cells if cell]
    has_fraction = any("." in cell and as_number(cell) is not None for cell in named)
    return len(set(named)) == len(named) and as_number(cells[0]) is None and not has_fraction
