"""The diagnostics on runs with labels: faults that must be found by name, and healthy runs of which nothing may be said.

Every case is trained by this project's trainer as a user's own task, with each seed; then all rules judge its result. A label
of a case must be found, or may be said too; any other is wrong, and so is any of a healthy run. `--set second` takes cases of
another author, on other data, models and optimizers, by which no rule was made.

`--set third` takes faults of one's own code on tokens, Datasets, streams and tables; there a label counts as found, too,
where planning's checks of the data tell it. `--set published` takes faults that others published, rebuilt; `--set causes` asks
that the cause itself is named at what fires, of faults that only look like underfitting, with a twin without the fault each.

    python tests/benchmarks/bench_diagnostics.py [--set second] [--seeds 11 12 ...] [--only F01,H03] [--jobs 2] [--again]
        [--write]

Results are kept, and trained again only where the trainer's code has changed; `--again` judges what is kept and trains nothing.
`--write` puts the outcome into docs/DIAGNOSTICS.md. Of single cases of the
second and the third set nothing is told unless `--only` asks.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.benchmarks.diagnostics import causes, first, published, second, third, unseen, unseen_second, unseen_third
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.data_checks import checked
from tests.benchmarks.diagnostics.judging import Verdict, by_case, by_label, judged, totals
from tests.benchmarks.diagnostics.training import kept, train_and_keep
from tests.benchmarks.scorecard.table import placed

PAGE = Path(__file__).parents[2] / "docs" / "DIAGNOSTICS.md"
KEPT = Path(tempfile.gettempdir()) / "diagnostics-bench"
SETS = {"first": first.CASES, "second": second.CASES, "third": third.CASES, "published": published.CASES, "causes": causes.CASES}
SEEDS = {
    "first": [11, 12, 13, 14, 15],
    "second": [11, 12, 13, 14, 15],
    "third": [21, 22, 23],
    "published": [31, 32, 33],
    "causes": [41, 42],
}
TWINS = "twins"  # the third set with its faulty cases' correct twins, which bench_twins.py measures
UNSEEN = "unseen"  # faults and twins by authors who did not know the rules, which bench_unseen.py judges by words
KNOWN = {
    **SETS,
    TWINS: [*third.CASES, *(one.twin for one in third.PAIRS)],
    UNSEEN: [case for pair in (*unseen.PAIRS, *unseen_second.PAIRS, *unseen_third.PAIRS) for case in (pair.faulty, pair.twin)],
}
TOLD = frozenset(["first", "published", "causes"])  # sets of whose single cases the page tells
BRIEF = frozenset(["first", "second", "causes"])  # sets of which the page has a line alone
CHECKED = frozenset(["third"])  # sets whose data planning's checks are asked about
MARKS = {name: (f"<!-- {name}: written by `make diagnostics-bench` -->", f"<!-- {name}: end -->") for name in SETS}
Run = tuple[Case, int]


def train_missing(name: str, runs: Sequence[Run], folder: Path, jobs: int) -> None:
    """Train the runs of a set of which no result of this code is kept, in processes that import torch once."""
    waiting = [run for run in runs if kept(*run, folder) is None]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        asked = {pool.submit(_train, name, case.id, seed, folder): (case, seed) for case, seed in waiting}
        for done, future in enumerate(as_completed(asked), 1):
            case, seed = asked[future]
            print(f"{done}/{len(asked)} {case.id} seed {seed}: {future.result():.1f} s", file=sys.stderr, flush=True)


def _train(name: str, case: str, seed: int, folder: Path) -> float:
    """Train one run; a case is named, because what makes its task cannot go to another process."""
    return train_and_keep(next(one for one in KNOWN[name] if one.id == case), seed, folder)


def judged_runs(name: str, runs: Sequence[Run], folder: Path) -> list[Verdict]:
    """Judge the kept results of runs of a set; those of which there is none are left out."""
    results = ((case, seed, kept(case, seed, folder, of_any_code=True)) for case, seed in runs)
    told = {case.id: checked(case) for case in {case.id: case for case, _ in runs}.values()} if name in CHECKED else {}
    return [judged(case, seed, result, told.get(case.id)) for case, seed, result in results if result is not None]


# --- the page -------------------------------------------------------------------------------------


def block(verdicts: Sequence[Verdict], with_cases: bool = True) -> str:
    """Return the outcome in Markdown."""
    all_in_all, seeds = totals(verdicts), sorted({one.seed for one in verdicts})
    cases = len({one.case.id for one in verdicts})
    wrong = _cases(by_case(verdicts)) if with_cases else _rules(by_label(verdicts))
    return "\n\n".join([f"{cases} cases with seeds {', '.join(map(str, seeds))}.", _summary(all_in_all), *wrong])


def brief(verdicts: Sequence[Verdict]) -> str:
    """Return the outcome in a line."""
    found, seeds = totals(verdicts), sorted({one.seed for one in verdicts})
    healthy = _share(found["healthy_flagged"], found["healthy"])
    return (
        f"{len({one.case.id for one in verdicts})} cases with seeds {', '.join(map(str, seeds))}: "
        f"{_share(found['must_found'], found['must'])} of the labels found, something said of {healthy} healthy runs, "
        f"wrong labels: {found['wrong']}."
    )


def table(head: Sequence[str], numbers: int, rows: Sequence[Sequence[Any]]) -> str:
    """Return a table whose last columns are numbers."""
    lines = [head, ["---"] * (len(head) - numbers) + ["---:"] * numbers, *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _summary(found: dict[str, Any]) -> str:
    rows = [
        ["faulty runs of which something was said", _share(found["faulty_flagged"], found["faulty"])],
        ["labels that must be found, and were", _share(found["must_found"], found["must"])],
        ["healthy runs of which something was said", _share(found["healthy_flagged"], found["healthy"])],
        ["wrong labels, of healthy and faulty runs", f"{found['wrong']} in {found['healthy'] + found['faulty']} runs"],
    ]
    if found["since"] is not None:
        rows.append(["median step of the first sign, as a share of the run", f"{found['since']:.0%}"])
    if found["must_found_by_checks_alone"] is not None:
        told = _share(found["faulty_flagged_or_checked"], found["faulty"])
        rows.append(["faulty runs of which a diagnostic or one of planning's checks said something", told])
        rows.append(["labels found by planning's checks of the data alone", found["must_found_by_checks_alone"]])
        rows.append(["healthy runs whose data these checks warned of", found["healthy_warned_by_checks"]])
    if found["refused"]:
        rows.append(["runs that could not be trained, and do not count", found["refused"]])
    return table(["", "runs"], 1, rows)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})" if whole else "0 of 0"


def _rules(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of the labels that were missed or wrong somewhere, if any were."""
    rows = [row for row in rows if row["missed"] or row["wrong"]]
    head = ["diagnostic", "found", "missed", "wrong", "of them on healthy runs"]
    keys = ("found", "missed", "wrong", "wrong_of_healthy")
    lines = [[", ".join(row["diagnostics"]), *(row[key] for key in keys)] for row in rows]
    return [table(head, 4, lines)] if lines else []


def _cases(rows: Sequence[dict[str, Any]]) -> list[str]:
    head = ["case", "", "missed in runs", "wrong in runs"]
    return [table(head, 0, [[row["case"], row["what"], _missed(row), _runs(row["wrong"])] for row in rows])] if rows else []


def _missed(row: dict[str, Any]) -> str:
    return f"not trained: {row['refused']}".replace("|", "\\|") if row["refused"] else _runs(row["missed"])


def _runs(labels: dict[str, int]) -> str:
    return ", ".join(f"{label} {count}" for label, count in sorted(labels.items()))


# --- the command ----------------------------------------------------------------------------------


def told(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the outcome as lines of JSON."""
    lines: list[dict[str, Any]] = [{"total": totals(verdicts)}]
    lines += [{"rule": row} for row in by_label(verdicts)]
    return lines + [{"case": row} for row in by_case(verdicts)]


def main() -> None:
    """Train what is missing, judge, and print or write the outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=list(SETS), default="first")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    seeds = given.seeds or SEEDS[given.set]
    runs = [(case, seed) for seed in seeds for case in SETS[given.set] if not given.only or case.id in given.only]
    if not given.again:
        train_missing(given.set, runs, given.kept, given.jobs)
    verdicts = judged_runs(given.set, runs, given.kept)
    with_cases = given.set in TOLD or bool(given.only)
    for line in told(verdicts):
        if with_cases or "case" not in line:
            print(json.dumps(line))
    if given.write:
        outcome = brief(verdicts) if given.set in BRIEF else block(verdicts, with_cases)
        page = placed(PAGE.read_text("utf-8"), outcome, MARKS[given.set])
        PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
