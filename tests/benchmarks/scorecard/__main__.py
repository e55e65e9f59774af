"""The scorecard: the same small training through every trainer that is installed, or this one's own tasks.

python -m tests.benchmarks.scorecard [--built-in | --strategies | --processes] [--only NAME] [--rows TEXT] [--keep FOLDER]
    [--jobs N] [--dry]
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.benchmarks.scorecard import measure, rows, trainers
from tests.benchmarks.scorecard.judging import judge
from tests.benchmarks.scorecard.process import ROOT
from tests.benchmarks.scorecard.processes import measure as processes_measure
from tests.benchmarks.scorecard.processes import rows as processes_rows
from tests.benchmarks.scorecard.processes import trainers as processes_trainers
from tests.benchmarks.scorecard.rows import Cell, Row
from tests.benchmarks.scorecard.store import Column, merged, save, stored
from tests.benchmarks.scorecard.table import (
    BUILT_IN_MARKS,
    MARKS,
    PROCESSES_MARKS,
    STRATEGIES_MARKS,
    placed,
    render,
    versions_line,
)

STORE = ROOT / "build" / "scorecard"
PAGE = ROOT / "docs" / "SCORECARD.md"
OWN = ("mltrainer", "lightning", "transformers", "torch")
PLAIN = ("mltrainer", "torch")


@dataclass(frozen=True)
class Table:
    """One of the tables.

    Attributes:
        trainers: Its columns.
        rows: Its lines.
        bench: Where a trainer's runs come from; given the trainer and an empty folder.
        marks: The comments between which it stands.
        store: The folder of what was measured.
        machine: What each training was given.
        distributions: Whose versions are told; none: those of the trainers.
    """

    trainers: Sequence[Any]
    rows: Sequence[Row[Any]]
    bench: Callable[[Any, Path], Any]
    marks: tuple[str, str]
    store: Path = STORE
    machine: str = "CPU, one thread"
    distributions: tuple[str, ...] = ()


TRAINERS = Table(trainers.TRAINERS, rows.ROWS, measure.Bench, MARKS)
BUILT_IN = Table(trainers.BUILT_IN, rows.ROWS, measure.Bench, BUILT_IN_MARKS, distributions=OWN)
STRATEGIES = Table(
    trainers.STRATEGIES,
    rows.ROWS,
    measure.Bench,
    STRATEGIES_MARKS,
    STORE / "strategies",
    distributions=("mltrainer", "peft", "torch"),
)
PROCESSES = Table(
    processes_trainers.TRAINERS,
    processes_rows.ROWS,
    processes_measure.Bench,
    PROCESSES_MARKS,
    STORE / "processes",
    "CPU, gloo, one thread a process",
)


def main() -> None:
    """Measure, print, and write the table to its document."""
    chosen = _arguments()
    table = chosen.table
    asked = [row for row in table.rows if chosen.rows in row.title]
    versions = {trainer.name: _version(trainer.distribution) for trainer in table.trainers}
    measured = [t for t in table.trainers if versions[t.name] and chosen.only.lower() in t.name.lower()]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(chosen.jobs) as pool:
        folder = Path(chosen.keep or scratch)
        keep = (lambda column: None) if chosen.dry else (lambda column: _keep(table, column))
        found = list(pool.map(lambda trainer: _measured(table, trainer, folder, asked, keep), measured))
    if chosen.dry:
        print(render(asked, {column.name: column.cells for column in found}))
        return
    block = _block(table, versions)
    print(f"\n{block}")
    PAGE.write_text(placed(PAGE.read_text("utf-8"), block, table.marks), "utf-8")


def _keep(table: Table, found: Column) -> None:
    """Write a column; of one with some of the rows, the cells into the column that was measured before, where there is one."""
    whole = found.titles == [row.title for row in table.rows]
    column = found if whole else merged(stored(table.store, found.name, found.version, table.rows), found)
    if column is not None:
        save(table.store, column)


def _block(table: Table, versions: dict[str, str | None]) -> str:
    """Return a table of all that was measured, now or before, with what it was measured on."""
    names = [trainer.name for trainer in table.trainers]
    columns = [column for name in names if (column := stored(table.store, name, versions[name], table.rows)) is not None]
    told = {name: _version(name) for name in table.distributions} or _measured_versions(table, columns, versions)
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {table.machine}."
    return f"{render(table.rows, {column.name: column.cells for column in columns})}\n{versions_line(told)} {machine}"


def _measured_versions(table: Table, columns: list[Column], versions: dict[str, str | None]) -> dict[str, str | None]:
    """Return the versions of the table's trainers, None for one that is not installed, and torch's."""
    named = {column.name for column in columns} | {name for name, version in versions.items() if version is None}
    # of trainers of one distribution the first names it
    first = {t.distribution: t.name for t in reversed(table.trainers) if t.name in named and t.distribution != "torch"}
    told = {name: versions[name] for name in versions if name in first.values()}
    return told | {"torch": _version("torch")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scorecard")
    table = parser.add_mutually_exclusive_group()
    table.set_defaults(table=TRAINERS)
    table.add_argument(
        "--built-in",
        dest="table",
        action="store_const",
        const=BUILT_IN,
        help="this trainer's own tasks: a table, texts, images, models of other frameworks",
    )
    table.add_argument(
        "--strategies", dest="table", action="store_const", const=STRATEGIES, help="this trainer with each training strategy"
    )
    table.add_argument(
        "--processes", dest="table", action="store_const", const=PROCESSES, help="one training shared by 1, 2 and 4 processes"
    )
    parser.add_argument("--only", default="", help="trainers whose name contains this; the columns of others stay")
    parser.add_argument("--rows", default="", help="rows whose title contains this; others of a measured column stay")
    parser.add_argument("--keep", help="an empty folder for the runs, which stay there")
    parser.add_argument("--jobs", type=int, default=1, help="trainers measured at a time")
    parser.add_argument("--dry", action="store_true", help="print only, write nothing")
    return parser.parse_args()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _measured(table: Table, trainer: Any, scratch: Path, asked: Sequence[Row[Any]], keep: Callable[[Column], None]) -> Column:
    folder = scratch / trainer.name.replace(" ", "-")
    folder.mkdir(parents=True)
    started = time.perf_counter()

    def tell(row: Row[Any], cell: Cell) -> None:
        print(f"  {time.perf_counter() - started:5.0f} s  {trainer.name:10}  {cell.mark:7}  {row.title}: {cell.text}", flush=True)

    cells = judge(table.bench(trainer, folder), asked, tell)
    column = Column(trainer.name, _version(trainer.distribution), [row.title for row in asked], cells)
    keep(column)  # each as soon as it is measured: all of them take long
    return column


if __name__ == "__main__":
    main()
