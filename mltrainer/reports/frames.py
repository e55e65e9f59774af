"""Rows of plain data as a pandas frame, where pandas is installed; no other module of this package needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mltrainer.errors import InputError
from mltrainer.reports.values import as_float

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Iterable[Mapping[str, Any]], index: str | None = None) -> pd.DataFrame:
    """Return rows as a frame: nested values as columns with dotted names, lists as they are, "nan" and "inf" as numbers.

    Args:
        rows: The rows of the frame.
        index: The name of the column that becomes its index; None: the rows' numbers.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        hint = "pip install 'mltrainer[pandas]'; history, steps and rows are the same as plain data"
        raise InputError("a frame needs the package pandas", hint=hint) from error
    found = pd.DataFrame([dict(_cells(row)) for row in rows])
    # A frame without rows has no column either that could be the index.
    return found if index is None or found.empty else found.set_index(index)


def _cells(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _cells(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _cell(value)


def _cell(value: Any) -> Any:
    """Return a value; a number that JSON could not hold becomes one again."""
    return as_float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else value


def history_frame(history: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return evaluations as a frame by step, without `signals`, which is not a single number for each row."""
    return frame(({key: value for key, value in row.items() if key != "signals"} for row in history), "step")
