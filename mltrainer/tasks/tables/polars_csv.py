"""CSV files read by polars, where their form is unambiguous; the strict reader takes the others."""

from __future__ import annotations

from typing import Any

import numpy as np

QUOTE, NEWLINE, RETURN = b'"', b"\n", b"\r"
BLOCK = 1 << 20  # bytes that are examined at a time: intermediate results stay in the processor's cache
TOGETHER = 256  # columns of which polars strips the cells at once: one at a time takes longer than the cells do
SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))  # the blanks that Python strips; polars strips only some of them
BLANKS = [char.encode() for char in SPACES if char.isascii() and char != "\n"]
FIELD_LIMIT = 131_072  # characters of a cell that the strict reader takes


def frame_of(data: bytes, names: list[str], delimiter: str, has_header: bool) -> Any:
    """Return a CSV file's cells as a polars frame of text, or None where the strict reader must read it.

    Args:
        data: The file's bytes, without a byte order mark.
        names: The columns.
        delimiter: The delimiter between cells.
        has_header: Whether the first record holds the names.
    """
    data = _plain_lines(data)
    # Looked at first, as polars silently fills up a line that has too few cells.
    if not is_regular(data, delimiter.encode(), len(names)):
        return None
    import polars

    try:
        frame = polars.read_csv(
            data, has_header=has_header, new_columns=names, separator=delimiter, infer_schema=False, empty_string_is_null=False
        )
    # No error yet: the strict reader reports the wrong line, if any is.
    except polars.exceptions.PolarsError:
        return None
    return frame if frame.width == len(names) and frame.height else None


def may_have_blanks(data: bytes) -> bool:
    """Return False if a CSV file's bytes show that no cell can have a space within."""
    return not data.isascii() or QUOTE in data or any(blank in data for blank in BLANKS)


def stripped(frame: Any) -> dict[str, Any]:
    """Return a frame's columns by name, without the spaces around their cells, in time that grows with the columns."""
    if frame.width <= TOGETHER:  # one by one: of a long frame, the memory is freed
        return {name: frame.drop_in_place(name).str.strip_chars(SPACES) for name in frame.columns}
    import polars

    columns: dict[str, Any] = {}
    for begin in range(0, frame.width, TOGETHER):
        part = frame[:, begin : begin + TOGETHER].select(polars.all().str.strip_chars(SPACES))
        columns.update(zip(part.columns, part.get_columns(), strict=True))
    return columns


def _plain_lines(data: bytes) -> bytes:
    """Return text whose lines end in one character, where no quoted cell could hold the other."""
    return data.replace(b"\r\n", NEWLINE) if RETURN in data and QUOTE not in data else data


def is_regular(data: bytes, delimiter: bytes, width: int) -> bool:
    """Return True if each line is a record of `width` cells, quotes are at the borders of cells only, and no line is blank."""
    if RETURN in data or b"\0" in data or data.startswith(NEWLINE):
        return False
    whole = data if data.endswith(NEWLINE) else data + NEWLINE
    raw = np.frombuffer(whole, dtype=np.uint8)
    has_quotes = QUOTE in data
    if has_quotes and not _quotes_are_at_borders(raw, delimiter):
        return False
    quoted, open_cells, last_end = False, 0, -1
    for start in range(0, len(raw), BLOCK):
        block = raw[start : start + BLOCK]
        outside: np.ndarray | bool = True
        if has_quotes:
            # A quoted cell may reach from one block into the next, so whether one is open is handed on.
            parity = np.logical_xor.accumulate(np.equal(block, QUOTE[0])) ^ quoted
            outside, quoted = ~parity, bool(parity[-1])
        marks = np.flatnonzero((np.equal(block, NEWLINE[0]) | np.equal(block, delimiter[0])) & outside)
        nth = np.flatnonzero(np.equal(block[marks], NEWLINE[0]))  # among the marks, those that end a line
        if not len(nth):
            open_cells += len(marks)
            continue
        ends = marks[nth] + start
        cells, lengths = np.diff(nth, prepend=-1 - open_cells), np.diff(ends, prepend=last_end)
        # The limit is that of a cell, but a line below it has no longer one; a blank line has the length 1.
        if (cells != width).any() or (lengths <= 1).any() or (lengths > FIELD_LIMIT).any():
            return False
        open_cells, last_end = len(marks) - 1 - int(nth[-1]), int(ends[-1])
    return not quoted


def _quotes_are_at_borders(raw: np.ndarray, delimiter: bytes) -> bool:
    """Return True if each opening quote is at a cell's beginning, and each closing one at its end, or doubled."""
    places = np.flatnonzero(np.equal(raw, QUOTE[0]))
    if len(places) % 2:
        return False
    before = np.concatenate([[NEWLINE[0]], raw])[places[::2]]
    after = raw[np.minimum(places[1::2] + 1, len(raw) - 1)]
    begins = np.isin(before, [delimiter[0], NEWLINE[0], QUOTE[0]])
    ends = np.isin(after, [delimiter[0], NEWLINE[0], QUOTE[0]])
    return bool(begins.all() and ends.all())
