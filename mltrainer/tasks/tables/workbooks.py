"""Tables from the sheets of workbooks, such as .xlsx: cells become the text that a CSV file would hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from mltrainer.checkpointing.inference_script import InvalidInputError, names_of, read_sheet
from mltrainer.errors import InputError
from mltrainer.tasks.content import WHOLE_FILE, Table

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
