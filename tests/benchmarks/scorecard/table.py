"""The table as Markdown, and its place in a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.benchmarks.scorecard.rows import Cell, Row

BEGIN, END = "<!-- scorecard: written by `make scorecard` -->", "<!-- scorecard: end -->"
SIGNS = {"pass": "✅", "fail": "❌", "unknown": "–"}


def render(rows: Sequence[Row], columns: Mapping[str, Sequence[Cell]]) -> str:
    """Return the table: one line per row, one column per trainer that was measured."""
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[row.title, *(_shown(cells[place]) for cells in columns.values())] for place, row in enumerate(rows)]
    lines.append(["**passed**", *(f"**{_passed(cells)} of {len(rows)}**" for cells in columns.values())])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(cell: Cell) -> str:
    return f"{SIGNS[cell.mark]} {cell.text}".replace("|", "\\|")


def _passed(cells: Sequence[Cell]) -> int:
    return sum(cell.mark == "pass" for cell in cells)


def placed(document: str, block: str) -> str:
    """Return a document with the block between its two comments.

    Raises:
        ValueError: The document does not have both comments, once and in order.
    """
    if document.count(BEGIN) != 1 or document.count(END) != 1 or document.index(BEGIN) > document.index(END):
        raise ValueError(f"expected one {BEGIN} before one {END}")
    before, after = document.split(BEGIN)[0], document.split(END)[1]
    return f"{before}{BEGIN}\n{block.strip()}\n{END}{after}"


def versions_line(versions: Mapping[str, str | None]) -> str:
    """Return a sentence that names what was measured, and what was not because it is not installed."""
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = ", ".join(name for name, version in versions.items() if not version)
    return f"Versions: {known}." + (f" Not installed, so left out: {missing}." if missing else "")
