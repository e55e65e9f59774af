"""The layout of a record's text: sorted keys, and one row of a list on one line, so that a diff shows the row that changed."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 1000  # characters of a row on one line; a longer one is spread over several


def record_json(content: Any) -> bytes:
    """Return a record's text in bytes; two equal records have the same bytes.

    Raises:
        ValueError: A number in it is not finite; `workspace.plain` replaces such numbers by words.
    """
    return (_laid_out(content, "", row=False) + "\n").encode()


def _laid_out(value: Any, indent: str, *, row: bool) -> str:
    if not value or not isinstance(value, dict | list):
        return _line(value)
    if row or not any(isinstance(item, dict | list) for item in (value.values() if isinstance(value, dict) else value)):
        line = _line(value)
        if len(line) <= LONGEST:
            return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{_line(key)}: {_laid_out(value[key], inner, row=False)}" for key in sorted(value)]
        return f"{{\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}}}"
    parts = [_laid_out(item, inner, row=True) for item in value]
    return f"[\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}]"


_line = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode
