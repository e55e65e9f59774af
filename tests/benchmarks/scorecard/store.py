"""What was measured, one file per trainer, so that one of them can be measured again without the others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard.rows import Cell, Row


@dataclass(frozen=True)
class Column:
    """The cells of one trainer.

    Attributes:
        name: The trainer.
        version: Its version.
        titles: The rows.
        cells: One per row.
    """

    name: str
    version: str | None
    titles: list[str]
    cells: list[Cell]


def save(folder: Path, column: Column) -> None:
    """Write a trainer's column."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{column.name}.json").write_text(json.dumps(dataclasses.asdict(column), indent=1))


def stored(folder: Path, name: str, version: str | None, rows: Sequence[Row[Any]]) -> Column | None:
    """Return a trainer's column; None where it was not measured, or in another version, or with other rows."""
    path = folder / f"{name}.json"
    if version is None or not path.exists():
        return None
    found = json.loads(path.read_text())
    column = Column(found["name"], found["version"], found["titles"], [Cell(**cell) for cell in found["cells"]])
    return column if column.version == version and column.titles == [row.title for row in rows] else None


def merged(known: Column | None, found: Column) -> Column | None:
    """Return a column in which the cells of some rows take the place of older ones; None where no older ones are known."""
    if known is None:
        return None
    newer = dict(zip(found.titles, found.cells, strict=True))
    cells = [newer.get(title, cell) for title, cell in zip(known.titles, known.cells, strict=True)]
    return dataclasses.replace(known, cells=cells)
