"""Spellings of a missing value that a table uses beside the built-in ones, for `data.missing`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mltrainer.checkpointing.inference_script import PARSERS
from mltrainer.tasks.content import Table
from mltrainer.tasks.tables.columns import NUMERIC_SHARE, Column

# Chosen by us. In any column these mean nothing else:
SURE = {"n/a", "#n/a", "<na>", "null", "nan", "nat", "\\n", "n.a.", "#null!", "#value!", "#ref!", "#div/0!", "#name?"}
SURE |= {"0000-00-00", "0000-00-00 00:00:00"}
# and these in columns of numbers or dates, where a word can be no category:
MARKS = {"-", "--", "---", "\u2013", "\u2014", ".", "..", "...", "*", "??", "???"}
WORDS = {"na", "none", "nil", "missing", "unknown", "undefined", "not available", "not applicable", "empty", "k.a.", "k. a."}
LOOKED_AT = 2000  # distinct texts of a column that are tried


def missing_spellings(table: Table, plain: Mapping[str, Column]) -> list[str]:
    """Return the spellings of a missing value that a table's cells use, sorted.

    A word that is a category in one column is none in another: both would be emptied.

    Args:
        table: The cells.
        plain: The columns as inferred from their cells alone.
    """
    texts = {name: texts_of(column, table) for name, column in plain.items()}
    measured = {name for name, found in texts.items() if _is_measured(plain[name], found)}
    named = {text for name, found in texts.items() if name not in measured for text in found}
    found = {text for each in texts.values() for text in each if text.lower() in SURE}
    found |= {text for name in measured for text in texts[name] if text.lower() in MARKS | WORDS}
    return sorted(text for text in found if text.lower() not in WORDS or text not in named)


def texts_of(column: Column, table: Table) -> list[str]:
    """Return the distinct texts among which a spelling could be: in a number column, those that are no numbers."""
    if column.kind != "number":
        return column.texts
    cells = table.columns[column.name]
    return sorted({str(cells[int(row)]) for row in column.wrong})


def _is_measured(column: Column, texts: list[str]) -> bool:
    """Return True if a column holds numbers or dates, except for possible spellings of a missing value."""
    if column.kind == "number":
        return True
    others = [text for text in texts if text.lower() not in SURE | MARKS | WORDS]
    if len(others) < 2:
        return False
    looked = [others[nr] for nr in np.unique(np.linspace(0, len(others) - 1, min(len(others), LOOKED_AT)).astype(int))]
    kinds = ("number", "formatted", "decimal_comma", "date", "date_day_first")
    return any(sum(PARSERS[kind](text) is not None for text in looked) >= NUMERIC_SHARE * len(looked) for kind in kinds)
