"""Plain aligned text for a terminal: nothing in it can move the cursor, change colours or hide."""

from __future__ import annotations

import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

from mltrainer.reports.values import cut, visible

GAP = "  "
FARTHEST = 0.6  # share of the width: a column that begins farther to the right is too narrow to fold its text in
# Never split: text to copy (code in backticks, a command with its options), and a number with its percent sign.
_WHOLE = re.compile(r"`[^`]*`|\d %|\bmltrainer(?: [a-z][\w-]*){0,3}(?: --?[\w-]+(?:[ =][^\s,;]+)?)*")
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(\.[0-9]+)?(e[+-]?[0-9]+)?")


def columns(text: str) -> int:
    """Return a text's width in terminal columns; wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def table(rows: Iterable[Sequence[object]], headers: Sequence[str], *, limit: int = 80) -> str:
    """Return rows under their headers, aligned; numbers are right-aligned.

    Args:
        rows: The rows' cells; None is an empty cell.
        headers: The columns' names; where all are empty, there is no head.
        limit: The longest cell in characters; the last column is never cut.
    """
    cells = [[_cell(value, limit if nr + 1 < len(headers) else None) for nr, value in enumerate(row)] for row in rows]
    if not cells:
        return "(none)\n"
    widths = [max(columns(row[nr]) for row in [list(headers), *cells]) for nr in range(len(headers))]
    right = [all(bool(_NUMBER.fullmatch(row[nr])) for row in cells) for nr in range(len(headers))]
    head = [list(headers), ["-" * width for width in widths]] if any(headers) else []
    return "\n".join(_line(row, widths, right) for row in [*head, *cells]) + "\n"


def folded(text: str, stream: TextIO) -> str:
    """Return text for a stream: folded between words on a terminal, unchanged elsewhere."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(line if columns(line) <= width else _folded(line, width) for line in text.split("\n"))


def _folded(line: str, width: int) -> str:
    """Return a line folded into several: the rest of a sentence is indented, that of a table's row is below its last column."""
    if not line.strip("- "):
        return line[:width]
    whole = _WHOLE.sub(lambda match: match[0].replace(" ", "\0"), line)
    margin, column = len(line) - len(line.lstrip()) + 2, line.rfind(GAP) + len(GAP)
    indent = column if margin < column <= FARTHEST * width else margin
    lines = textwrap.wrap(whole, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")


def _cell(value: object, limit: int | None) -> str:
    shown = "" if value is None else visible(value)
    return shown if limit is None else cut(shown, limit)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        room = " " * (width - columns(cell))
        parts.append(room + cell if to_right else cell + room)
    return GAP.join(parts).rstrip()
