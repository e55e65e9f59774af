"""The scorecard: the same small training through every trainer that is installed.

python -m tests.benchmarks.scorecard [--only NAME] [--rows TEXT] [--keep FOLDER] [--jobs N] [--dry]
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
from tests.benchmarks.scorecard.table import placed, render, versions_line
from tests.benchmarks.scorecard.trainers import TRAINERS

PAGE, README = ROOT / "docs" / "SCORECARD.md", ROOT / "README.md"


def main() -> None:
    """Measure, print, and write the table to its two documents."""
    chosen = _arguments()
    rows = [row for row in ROWS if chosen.rows in row.title]
    versions = {trainer.name: _version(trainer.distribution) for trainer in TRAINERS}
    trainers = [t for t in TRAINERS if versions[t.name] and chosen.only.lower() in t.name.lower()]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(chosen.jobs) as pool:
        cells = pool.map(lambda trainer: _measured(trainer, Path(chosen.keep or scratch), rows), trainers)
        columns = dict(zip((trainer.name for trainer in trainers), cells, strict=True))
    minutes = (time.perf_counter() - started) / 60
    table = render(rows, columns)
    facts = f"{versions_line({**versions, 'torch': _version('torch')})} {_machine()} {minutes:.0f} min."
    print(f"\n{table}\n{facts}")
    if not chosen.dry:
        _write(table, facts)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scorecard")
    parser.add_argument("--only", default="", help="trainers whose name contains this")
    parser.add_argument("--rows", default="", help="rows whose title contains this")
    parser.add_argument("--keep", help="an empty folder for the runs, which stay there")
    parser.add_argument("--jobs", type=int, default=1, help="trainers measured at a time")
    parser.add_argument("--dry", action="store_true", help="print only, write no document")
    return parser.parse_args()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> str:
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, CPU, one thread;"


def _measured(trainer: Trainer, scratch: Path, rows: list[Row]) -> list[Cell]:
    folder = scratch / trainer.name.replace(" ", "-")
    folder.mkdir(parents=True)
    started = time.perf_counter()

    def tell(row: Row, cell: Cell) -> None:
        print(f"  {time.perf_counter() - started:5.0f} s  {trainer.name:10}  {cell.mark:7}  {row.title}: {cell.text}", flush=True)

    return judge(Bench(trainer, folder), rows, tell)


def _write(table: str, facts: str) -> None:
    for path in (PAGE, README):
        path.write_text(placed(path.read_text("utf-8"), f"{table}\n{facts}"), "utf-8")


if __name__ == "__main__":
    main()
