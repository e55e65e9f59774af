"""The harm of each fault of the third set: its runs beside those of the same training without the fault.

    python tests/benchmarks/bench_twins.py [--only F101,H101] [--jobs 2]

Prints a Markdown table: of each case the mean over its seeds of loss and metric at the end of the run, on both splits; of a
faulty case those of its twin beside them. Results are kept, those of faulty cases for the benchmark of diagnostics too.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_diagnostics import KEPT, SEEDS, TWINS, table, train_missing
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.third import HEALTHY, PAIRS
from tests.benchmarks.diagnostics.training import kept

HEAD = ("case", "", "metric", "loss", "on validation", "metric", "on validation")


def row(case: Case, results: Sequence[dict[str, Any]]) -> list[str]:
    """Return a case's line of the table; of runs that ended early it says how many."""
    lasts = [result["history"][-1] for result in results if result.get("history")]
    name = results[0]["metric"]["name"]
    shown = [f"{_mean(lasts, split, key):.4g}" for key in ("loss", name) for split in ("train", "validation")]
    early = f", {len(results) - len(lasts)} ended before the first evaluation" if len(lasts) < len(results) else ""
    return [case.id, case.what + early, name, *shown]


def _mean(lasts: Sequence[dict[str, Any]], split: str, key: str) -> float:
    return statistics.fmean(float(last[split][key]) for last in lasts) if lasts else math.nan


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=KEPT)
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cases = [case for one in PAIRS for case in (one.case, one.twin) if not given.only or one.case.id in given.only]
    cases += [case for case in HEALTHY if not given.only or case.id in given.only]
    seeds = SEEDS["third"]
    train_missing(TWINS, [(case, seed) for case in cases for seed in seeds], given.kept, given.jobs)
    found = {case.id: [kept(case, seed, given.kept) or {} for seed in seeds] for case in cases}
    print(table(HEAD, 4, [row(case, found[case.id]) for case in cases]))


if __name__ == "__main__":
    main()
