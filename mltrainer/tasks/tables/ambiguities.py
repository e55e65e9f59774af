"""Cells that can be read in more than one way: a sentence for each column that has some."""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import UTC, datetime, timedelta

from mltrainer.checkpointing.inference_script import DATES, FORMATS, PARSERS, unit_of
from mltrainer.configs.project import ColumnKind
from mltrainer.tasks.tables.columns import NUMERIC_SHARE, Column

LOOKED_AT = 2000  # distinct texts of a column that are tried
FEW = 20  # chosen by us: up to this number of distinct texts are categories, even if they look like something else
OTHER_READING: dict[ColumnKind, ColumnKind] = {
    "date": "date_day_first",
    "formatted": "decimal_comma",
    "decimal_comma": "formatted",
}
_UNIT = re.compile(r"[-+]?\d[\d.,]*\s*[^\W\d_]{1,8}[\u00b2\u00b3]?")
_PLAIN = re.compile(r"[\d.,'\s()+-]+")


def ambiguities(column: Column, kind: ColumnKind | None) -> list[str]:
    """Return the other possible readings of a column's cells, as sentences.

    Args:
        column: The column as inferred from its cells alone.
        kind: The kind that replaces the inferred one.
    """
    texts = column.texts[:: max(1, len(column.texts) // LOOKED_AT)]
    if kind in OTHER_READING:
        return [*_ambiguous(column.name, kind, texts), *_mixed(column.name, kind, texts)]
    return [*_units(column.name, texts), *_spelled_twice(column.name, texts)] if kind in (None, "category", "hashed") else []


def as_key(name: str) -> str:
    """Return a column's name as it is written in a project file."""
    # Words that YAML takes for null or a boolean, some of them in its version 1.1 alone, are no names without quotes.
    is_plain = re.fullmatch(r"[^\W\d]\w*", name) and name.lower() not in ("null", "true", "false", "yes", "no", "on", "off")
    return name if is_plain else json.dumps(name, ensure_ascii=False)


def _ambiguous(name: str, kind: ColumnKind, texts: list[str]) -> list[str]:
    """Return a sentence on a cell with two possible readings, where no cell of the column decides between them."""
    other = OTHER_READING[kind]
    read = [(text, PARSERS[kind](text), PARSERS[other](text)) for text in texts]
    if any(one is not None and two is None for _, one, two in read):
        return []
    open_ones = [row for row in read if row[1] != row[2]]
    if not open_ones:
        return []
    text, one, two = open_ones[0]
    either = f"{text!r} is read as {_shown(one, kind)}; where it is {_shown(two, kind)}"
    return [f"column {name!r}: {either}, write data: {{columns: {{{as_key(name)}: {other}}}}}"]


def _shown(value: float | None, kind: ColumnKind) -> str:
    if value is None or kind not in DATES:
        return "no number" if value is None else f"{value:.10g}"
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value)).date().isoformat()


def _mixed(name: str, kind: ColumnKind, texts: list[str]) -> list[str]:
    """Return a sentence on a column of numbers with several currencies, or with cells of percent beside plain ones."""
    if kind in DATES:
        return []
    # The exponent of 1e5 leaves a letter behind, which is no currency.
    plain = [text for text in texts if PARSERS[kind](text) is not None and not unit_of(text, FORMATS[kind])]
    marks = {_PLAIN.sub("", text) for text in plain} - {"e", "E"}
    several = sorted(marks - {""})
    if len(several) < 2 and marks != {"", "%"}:
        return []
    shown = " and ".join([*several[:5], *(["plain ones"] if marks == {"", "%"} else [])])
    return [f"column {name!r} mixes {shown}: its numbers are taken as they are"]


def _units(name: str, texts: list[str]) -> list[str]:
    with_unit = [text for text in texts if _UNIT.fullmatch(text)]
    first = {unit: text for text in reversed(with_unit) if (unit := unit_of(text))}
    if len(texts) <= FEW or len(with_unit) < NUMERIC_SHARE * len(texts) or len(first) < 2:
        return []
    shown = " and ".join(repr(text) for text in sorted(first.values())[:3])
    return [f"column {name!r} holds numbers in several units, such as {shown}: to be numbers to a model they must have one"]


def _spelled_twice(name: str, texts: list[str]) -> list[str]:
    """Return a sentence on two categories that look alike: they differ by capitals, blanks, or the code of a letter only."""
    first: dict[str, str] = {}
    twice = [(first[key], text) for text in texts if first.setdefault(key := _alike(text), text) != text]
    return [f"column {name!r}: {twice[0][0]!r} and {twice[0][1]!r} are two categories"] if twice else []


def _alike(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
