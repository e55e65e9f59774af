"""The harm of each fault of the third set: its runs beside those of the same training without the fault.

    python tests/benchmarks/bench_twins.py [--only F101,H101] [--jobs 2] [--again]

Prints a Markdown table: of each case the mean over its seeds of loss and metric at the end of the run, on both splits, then those
of its twin. Results are kept, those of the cases for the benchmark of diagnostics too.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_diagnostics import KEPT, SEEDS, TWINS, table, train_missing
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.third import HEALTHY, PAIRS
from tests.benchmarks.diagnostics.training import kept

HEAD = ("case", "metric", "runs", "loss", "validation", "metric", "validation", "loss", "validation", "metric", "validation")


def row(case: Case, results: Sequence[dict[str, Any]], twins: Sequence[dict[str, Any]] = ()) -> list[str]:
    """Return a case's line: its own figures, and its twin's; of runs that ended before the first evaluation nothing is known."""
    name = next(one["metric"]["name"] for one in results)
    runs = f"{len(results)}, {len(twins)}" if twins else str(len(results))
    return [case.id, name, runs, *_figures(results, name), *(_figures(twins, name) if twins else [""] * 4)]


def _figures(results: Sequence[dict[str, Any]], name: str) -> list[str]:
    lasts = [one["history"][-1] for one in results if one["history"]]
    places = [(split, key) for key in ("loss", name) for split in ("train", "validation")]
    return [f"{statistics.fmean(float(last[split][key]) for last in lasts):.3g}" if lasts else "" for split, key in places]


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="train nothing, and take what is kept of any code")
    parser.add_argument("--kept", type=Path, default=KEPT)
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cases = [case for one in PAIRS for case in (one.case, one.twin) if not given.only or one.case.id in given.only]
    cases += [case for case in HEALTHY if not given.only or case.id in given.only]
    seeds = SEEDS["third"]
    if not given.again:
        train_missing(TWINS, [(case, seed) for case in cases for seed in seeds], given.kept, given.jobs)
    found = {case.id: [one for seed in seeds if (one := kept(case, seed, given.kept, given.again))] for case in cases}
    shown = [case for case in cases if not case.id.startswith("T")]
    print(table(HEAD, 8, [row(case, found[case.id], found.get(f"T{case.id}", ())) for case in shown]))


if __name__ == "__main__":
    main()
