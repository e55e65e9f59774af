"""How many labelled runs whose cause lies in their config are cured by what the diagnostics propose.

    PYTHONPATH=. python tests/benchmarks/bench_cures.py [--seeds 11 12 13] [--only F07,F44] [--jobs 2] [--write]

Each run is trained, diagnosed, and every change that `mltrainer diagnose --try` would train is trained for as long, on the same
seed: the shipped template's values, each suggestion of a page that fired, and all together. A run is cured where the best of them
has that verdict: no symptom fires any more, nothing critical does, and the model learns. Prints a line of JSON for each run, and
`--write` puts the outcome into docs/DIAGNOSTICS.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from mltrainer.diagnostics.remedies import CURES
from tests.benchmarks.bench_diagnostics import KEPT, PAGE, table
from tests.benchmarks.diagnostics import first
from tests.benchmarks.diagnostics.curing import tried
from tests.benchmarks.diagnostics.training import kept, train_and_keep
from tests.benchmarks.scorecard.table import placed

IN_CONFIG = {  # the cases whose cause is a value of their config, and that value
    "F05": "`optimizer.lr`: 8",
    "F06": "`batch_size`: 1, with `optimizer.momentum`: 0.9",
    "F07": "`optimizer.lr`: 1, of Adam",
    "F08": "`optimizer.lr`: 1e-6, of Adam",
    "F09": "`optimizer.lr`: 1e-12",
    "F10": "`optimizer.lr`: 8, a regression",
    "F27": "`optimizer.weight_decay`: 1",
    "F44": "`schedule.gamma`: 0.2",
    "F47": "`epochs`: 6",
}
MARKS = ("<!-- cures: written by bench_cures.py -->", "<!-- cures: end -->")


def try_one(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train a case unless its result is kept, and what may cure it."""
    case = next(one for one in first.CASES if one.id == name)
    if kept(case, seed, folder) is None:
        train_and_keep(case, seed, folder)
    result = kept(case, seed, folder)
    assert result is not None
    return tried(case, seed, result)


def block(rows: Sequence[dict[str, Any]]) -> str:
    """Return the outcome in Markdown, with the runs that were not cured."""
    cured = sum(row["verdict"] == CURES for row in rows)
    seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))
    head = ["case", "seed", "what is wrong", "fired", "best change", "verdict"]
    lines = [
        [row["case"], row["seed"], IN_CONFIG[row["case"]], ", ".join(row["fired"]), f"`{row['change']}`", row["verdict"]]
        for row in sorted(rows, key=lambda row: (row["case"], row["seed"]))
        if row["verdict"] != CURES
    ]
    told = f"{cured} of {len(rows)} runs ({cured / len(rows):.1%}) are cured; seeds {seeds}."
    return f"{told}\n\n{table(head, 0, lines)}"


def main() -> None:
    """Try, and print or write the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[11, 12, 13])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(IN_CONFIG))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = []
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        asked = [pool.submit(try_one, name, seed, given.kept) for seed in given.seeds for name in given.only]
        for done in as_completed(asked):
            rows.append(done.result())
            print(json.dumps(rows[-1]), flush=True)
    print(f"{sum(row['verdict'] == CURES for row in rows)} of {len(rows)} cured", file=sys.stderr)
    if given.write:
        PAGE.write_text(placed(PAGE.read_text("utf-8"), block(rows), MARKS), "utf-8")


if __name__ == "__main__":
    main()
