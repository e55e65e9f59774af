"""Judging a trainer's runs row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.benchmarks.scorecard.rows import Cell, Row

R = TypeVar("R")


def judge(runs: R, rows: Sequence[Row[R]], tell: Callable[[Row[R], Cell], None]) -> list[Cell]:
    """Return a trainer's cells; what fails in measuring is a cell of its own."""
    return [_told(row, _judged(runs, row), tell) for row in rows]


def _judged(runs: R, row: Row[R]) -> Cell:
    try:
        return row.judge(runs)
    except Exception as error:  # one trainer's fault does not stop the others
        return Cell(f"not measured: {type(error).__name__}: {str(error)[:50]}", "unknown")


def _told(row: Row[R], cell: Cell, tell: Callable[[Row[R], Cell], None]) -> Cell:
    tell(row, cell)
    return cell
