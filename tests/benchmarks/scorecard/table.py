"""The table as Markdown, and its place in a document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks.scorecard.rows import Cell, Row

MARKS = ("<!-- scorecard: written by `make scorecard` -->", "<!-- scorecard: end -->")
BUILT_IN_MARKS = ("<!-- built-in: written by `make scorecard-builtin` -->", "<!-- built-in: end -->")
STRATEGIES_MARKS = ("<!-- strategies: written by `make scorecard-strategies` -->", "<!-- strategies: end -->")
PROCESSES_MARKS = ("<!-- processes: written by `make scorecard-processes` -->", "<!-- processes: end -->")
SIGNS = {"pass": "✅", "fail": "❌", "unknown": "–", "unasked": "–"}
DIFFERS = re.compile(r"^differs \((?:weights )?([^,]*).*\)$")


def render(rows: Sequence[Row[Any]], columns: Mapping[str, Sequence[Cell]]) -> str:
    """Return the table: a line per row, a column per trainer that was measured; a sentence alone where every cell passes.

    Trainers with the same cells share a column.
    """
    if all(cell.mark == "pass" for cells in columns.values() for cell in cells):
        return f"{len(rows)} of {len(rows)} rows passed by each: {', '.join(columns)}.\n"
    shown = _joined(columns)
    lines = [["", *shown], ["---"] * (len(shown) + 1)]
    lines += [[row.title, *(_shown(cells[place]) for cells in shown.values())] for place, row in enumerate(rows)]
    lines.append(["**passed**", *(f"**{_passed(cells)}**" for cells in shown.values())])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _joined(columns: Mapping[str, Sequence[Cell]]) -> dict[str, Sequence[Cell]]:
    """Return the columns, of those with the same cells one."""
    names: dict[tuple[Cell, ...], list[str]] = {}
    for name, cells in columns.items():
        names.setdefault(tuple(cells), []).append(name)
    return {"; ".join(same): cells for cells, same in names.items()}


def _shown(cell: Cell) -> str:
    """Return a cell: the sign alone means the same bits, a number alone how far the weights differ."""
    text = DIFFERS.sub(r"\1", cell.text.removeprefix("same bits").lstrip())
    return f"{SIGNS[cell.mark]} {text}".rstrip().replace("|", "\\|")


def _passed(cells: Sequence[Cell]) -> str:
    return f"{sum(cell.mark == 'pass' for cell in cells)} of {sum(cell.mark != 'unasked' for cell in cells)}"


def placed(document: str, block: str, marks: tuple[str, str] = MARKS) -> str:
    """Return a document with the block between two comments.

    Raises:
        ValueError: The document does not have both comments, once and in order.
    """
    begin, end = marks
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        raise ValueError(f"expected one {begin} before one {end}")
    before, after = document.split(begin)[0], document.split(end)[1]
    return f"{before}{begin}\n{block.strip()}\n{end}{after}"


def versions_line(versions: Mapping[str, str | None]) -> str:
    """Return a sentence that names what was measured, and what was not because it is not installed."""
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = ", ".join(name for name, version in versions.items() if not version)
    return f"Versions: {known}." + (f" Not installed, so left out: {missing}." if missing else "")
