"""JSON lines read by polars, where each line has the first one's keys in its order; the strict reader takes other files."""

from __future__ import annotations

import json
import re
from typing import Any

from mltrainer.tasks.tables.polars_csv import SPACES

TEXT = r'"(?:[^"\\\x00-\x1f]|\\.)*"'
NUMBER = r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?"
VALUE = f"({TEXT}|{NUMBER}|true|false|null)"
BLANK = "[ \t]*"
PLAIN_KEY = re.compile(r'[^"\\\x00-\x1f]+')
# Python and polars write these alike, with the fewest digits that are read back as the same number
DECIMAL = r"^-?(?:[1-9][0-9]{0,14}\.|0\.(?:0{0,3}[1-9]|0$))[0-9]*$"
AS_IT_STANDS = r"^(?:-?[1-9][0-9]*|0|true|false)$"


def cells_of(data: bytes) -> dict[str, Any] | None:
    """Return a file's cells as polars' text by column, or None where the strict reader must read it.

    Args:
        data: The file's bytes, without a byte order mark.
    """
    names = _names(data[: data.find(b"\n")]) if b"\n" in data and b"\x01" not in data else None
    if names is None:
        return None
    import polars

    try:
        # A file of one column: the separator is a character that it does not hold, and quotes are ignored.
        lines = polars.read_csv(
            data, has_header=False, separator="\x01", quote_char=None, new_columns=["line"], infer_schema=False
        )
        fields = [f'"{re.escape(name)}"{BLANK}:{BLANK}{VALUE}' for name in names]
        pattern = rf"^{BLANK}\{{{BLANK}{f'{BLANK},{BLANK}'.join(fields)}{BLANK}\}}{BLANK}\r?$"
        found = lines["line"].str.extract_groups(pattern).struct.unnest()
        if found.null_count().sum_horizontal().item():
            return None
        return {name: _cells(found.drop_in_place(column)) for name, column in zip(names, found.columns, strict=True)}
    except (polars.exceptions.PolarsError, ValueError):
        return None


def _names(line: bytes) -> list[str] | None:
    """Return the keys of the first line, or None where they need a closer look."""
    try:
        pairs = json.loads(line, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    if not pairs or not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return None
    names = [name for name, _ in pairs]
    return names if len(set(names)) == len(names) and all(map(PLAIN_KEY.fullmatch, names)) else None


def _cells(raw: Any) -> Any:
    """Return a column's values as from the strict reader: numbers as Python writes them, null as empty."""
    import polars

    cell = polars.col("cell")
    text = cell.str.starts_with('"') & ~cell.str.contains("\\", literal=True)
    decimal = cell.str.contains(DECIMAL)
    known = (
        polars.when(text)
        .then(cell.str.slice(1, cell.str.len_chars() - 2))
        .when(cell == "null")
        .then(polars.lit(""))
        .when(cell.str.contains(AS_IT_STANDS))
        .then(cell)
        .when(decimal)
        # polars computes a branch for every row, also where it is not taken: the inner condition spares those the cast.
        .then(polars.when(decimal).then(cell).otherwise(None).cast(polars.Float64, strict=False).cast(polars.String))
    )
    cells = raw.alias("cell").to_frame().select(known.alias("known"))["known"]
    left = cells.is_null().arg_true()
    if len(left):
        values = raw.gather(left).to_list()
        read = {value: str(json.loads(value)) for value in set(values)}
        cells = cells.scatter(left, [read[value] for value in values])
    return cells.str.strip_chars(SPACES)
