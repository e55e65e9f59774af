"""Does what a user reads of a run name what is wrong with it? On faults by an author who did not know the rules.

Read is all that planning and the diagnostics find of a fault, and of its healthy twin: warnings and errors of the data and the
loss, why a run is refused, and of each diagnostic that fired its title, reason, causes and suggestions. A fault is named where
one of its words matches that; a word that matches what is said of the twin, too, names nothing.

    python tests/benchmarks/bench_unseen.py [--set first|second|third] [--only U01,U02] [--jobs 1] [--seed 41] [--harm | --text]

Prints for each pair what was said of the fault (named, something else, silent) and of its twin, and the totals. `--harm` prints
the metric of both on validation at the end instead, and `--text` what was said, too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.diagnostics.rules import findings
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.records.diagnostics import Diagnosis
from mltrainer.tasks.opening import open_task
from mltrainer.trainers.result import UnsoundDataError
from tests.benchmarks.diagnostics import unseen, unseen_second, unseen_third
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import config_of, train_config, trained
from tests.benchmarks.diagnostics.unseen import UnseenPair

SETS = {"first": unseen.PAIRS, "second": unseen_second.PAIRS, "third": unseen_third.PAIRS}
NAMED, ELSE, SILENT = "named", "something else", "silent"
LIMITS = DataLimits()


def said(case: Case, seed: int) -> list[tuple[str, str]]:
    """Return what a user reads of a run: where it stands, and its text."""
    task = case.task()
    config = config_of(case, seed, task)
    try:
        result = train_config(config, task, data_limits=LIMITS.model_dump(), rehearse=True)
    except UnsoundDataError:  # planning stops: nothing is trained
        return _of_data(open_task(config, Path.cwd(), task).facts(LIMITS))
    except InputError as error:
        return [("refused", str(error))]
    return [*_of_data(result["data"]), *_of_run(result, config)]


def _of_data(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [("planning", row["what"]) for row in facts["findings"] if row["severity"] != "info"]


def _of_run(result: dict[str, Any], config: TrainingConfig) -> list[tuple[str, str]]:
    rows = findings(Run.of(result), config.model_dump(), None)
    return [(row.id, _text(row)) for row in rows if row.state == "fired"]


def _text(row: Diagnosis) -> str:
    return "\n".join([row.title, row.reason, *row.causes, *(f"{one.why} {one.set}" for one in row.suggestions)])


def verdict(pair: UnseenPair, faulty: Sequence[tuple[str, str]], twin: Sequence[tuple[str, str]]) -> str:
    """Return what was said of the fault; a word that the twin's text matches counts for nothing."""
    words = [word for word in pair.words if not _matches(word, twin)]
    if any(_matches(word, faulty) for word in words):
        return NAMED
    return ELSE if faulty else SILENT


def _matches(word: str, told: Sequence[tuple[str, str]]) -> bool:
    return any(re.search(word, text, re.IGNORECASE) for _, text in told)


def judged(number: int, of: str, seed: int, with_text: bool) -> tuple[str, bool, str]:
    """Return the verdict of a pair, whether its twin was spoken of, and the line to print."""
    pair = SETS[of][number]
    faulty, twin = said(pair.faulty, seed), said(pair.twin, seed)
    found = verdict(pair, faulty, twin)
    of_twin = ", ".join(where for where, _ in twin) or SILENT
    lines = [f"{pair.id}  {found}; healthy: {of_twin}"]
    lines += [
        f"  {kind} {where}: {text}" for kind, told in (("faulty", faulty), ("healthy", twin)) for where, text in told if with_text
    ]
    return found, bool(twin), "\n".join(lines)


def harm(number: int, of: str, seed: int) -> str:
    """Return a line with the metric of a fault and of its twin at the end, on training and validation rows."""
    pair = SETS[of][number]
    return f"{pair.id}  faulty {_metric(pair.faulty, seed)}; healthy {_metric(pair.twin, seed)}"


def _metric(case: Case, seed: int) -> str:
    result = trained(case, seed)
    if not result.get("history"):
        return str(result.get("refused", "ended before an evaluation"))
    name, last = result["metric"]["name"], result["history"][-1]
    return f"{name} {last['train'][name]:.3g}, {last['validation'][name]:.3g}"


def main() -> None:
    """Train all, and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--harm", action="store_true")
    parser.add_argument("--text", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    numbers = [number for number, pair in enumerate(SETS[given.set]) if not given.only or pair.id in given.only]
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        if given.harm:
            for line in pool.map(partial(harm, of=given.set, seed=given.seed), numbers):
                print(line, flush=True)
            return
        counts: Counter[str] = Counter()
        for found, of_twin, line in pool.map(partial(judged, of=given.set, seed=given.seed, with_text=given.text), numbers):
            print(line, flush=True)
            counts.update([found, *(["healthy runs spoken of"] if of_twin else [])])
    print(
        f"{len(numbers)} pairs: " + ", ".join(f"{counts[key]} {key}" for key in (NAMED, ELSE, SILENT, "healthy runs spoken of"))
    )


if __name__ == "__main__":
    main()
