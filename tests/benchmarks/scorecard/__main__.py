"""The scorecard: the same small training through every trainer that is installed, or this one's own tasks.

python -m tests.benchmarks.scorecard [--built-in] [--only NAME] [--rows TEXT] [--keep FOLDER] [--jobs N] [--dry]
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from tests.benchmarks.scorecard.case import Trainer
from tests.benchmarks.scorecard.measure import Bench, judge
from tests.benchmarks.scorecard.process import ROOT
from tests.benchmarks.scorecard.rows import ROWS, Cell, Row
from tests.benchmarks.scorecard.store import Column, save, stored
from tests.benchmarks.scorecard.table import BUILT_IN_MARKS, MARKS, placed, render, versions_line
from tests.benchmarks.scorecard.trainers import BUILT_IN, TRAINERS

STORE = ROOT / "build" / "scorecard"
PAGE = ROOT / "docs" / "SCORECARD.md"


def main() -> None:
    """Measure, print, and write the table to its document."""
    chosen = _arguments()
    rows = [row for row in ROWS if chosen.rows in row.title]
    known = BUILT_IN if chosen.built_in else TRAINERS
    versions = {trainer.name: _version(trainer.distribution) for trainer in known}
    trainers = [t for t in known if versions[t.name] and chosen.only.lower() in t.name.lower()]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(chosen.jobs) as pool:
        found = list(pool.map(lambda trainer: _measured(trainer, Path(chosen.keep or scratch), rows), trainers))
    if chosen.dry or chosen.rows:
        print(render(rows, {column.name: column.cells for column in found}))
        return
    for column in found:
        save(STORE, column)
    columns = [column for t in known if (column := stored(STORE, t.name, versions[t.name], rows)) is not None]
    table = render(rows, {column.name: column.cells for column in columns})
    measured = _own_version() if chosen.built_in else _measured_versions(columns, versions)
    block = f"{table}\n{versions_line(measured)} {_machine()}"
    print(f"\n{block}")
    PAGE.write_text(placed(PAGE.read_text("utf-8"), block, BUILT_IN_MARKS if chosen.built_in else MARKS), "utf-8")


def _own_version() -> dict[str, str | None]:
    return {name: _version(name) for name in ("mltrainer", "lightning", "transformers", "torch")}


def _measured_versions(columns: list[Column], versions: dict[str, str | None]) -> dict[str, str | None]:
    """Return the versions of the table's trainers, None for one that is not installed, and torch's."""
    named = {column.name for column in columns} | {name for name, version in versions.items() if version is None}
    return {name: version for name, version in versions.items() if name in named} | {"torch": _version("torch")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scorecard")
    parser.add_argument(
        "--built-in", action="store_true", help="this trainer's own tasks: a table, texts, images, models of other frameworks"
    )
    parser.add_argument("--only", default="", help="trainers whose name contains this; the columns of others stay")
    parser.add_argument("--rows", default="", help="rows whose title contains this; printed only")
    parser.add_argument("--keep", help="an empty folder for the runs, which stay there")
    parser.add_argument("--jobs", type=int, default=1, help="trainers measured at a time")
    parser.add_argument("--dry", action="store_true", help="print only, write nothing")
    return parser.parse_args()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> str:
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, CPU, one thread."


def _measured(trainer: Trainer, scratch: Path, rows: list[Row]) -> Column:
    folder = scratch / trainer.name.replace(" ", "-")
    folder.mkdir(parents=True)
    started = time.perf_counter()

    def tell(row: Row, cell: Cell) -> None:
        print(f"  {time.perf_counter() - started:5.0f} s  {trainer.name:10}  {cell.mark:7}  {row.title}: {cell.text}", flush=True)

    cells = judge(Bench(trainer, folder), rows, tell)
    return Column(trainer.name, _version(trainer.distribution), [row.title for row in rows], cells)


if __name__ == "__main__":
    main()
