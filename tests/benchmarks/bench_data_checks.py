"""What each check of the data, and each of its heuristics, is worth: switched off once, against labelled cases.

The cases are those of the diagnostics' benchmark with their sound twins, and all data that the tests of the checks make on
purpose, faulty and sound.

    python tests/benchmarks/bench_data_checks.py [--checks | --heuristics] [--only NAME] [--case F10]

Prints for each check in how many cases it says something, and in how many it alone does; for each heuristic how many cases are
judged otherwise without it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from mltrainer.configs.items import DataLimits
from mltrainer.errors import MltrainerError
from mltrainer.reproducibility import seeds
from mltrainer.tasks import checks, leak_checks, leak_rules, split_checks, value_checks
from mltrainer.tasks.checks import CHECKS
from mltrainer.tasks.opening import check_model, make_model, open_task
from mltrainer.tasks.reading import DataView
from tests.benchmarks.bench_diagnostics import KNOWN
from tests.benchmarks.bench_unseen import SETS
from tests.benchmarks.diagnostics.case import Case
from tests.benchmarks.diagnostics.training import config_of

ROOT = Path(__file__).parents[2]
TESTS = [str(ROOT / "tests/tasks" / f"{name}.py") for name in ("test_sample_findings", "test_split_differences")]
Said = dict[str, tuple[str, ...]]  # by the name of the check
BY_CHECK = {one.name: one for one in CHECKS}


class Heuristic:
    """A gate of some checks, and how it is switched off.

    Args:
        name: What it is for.
        owner: The module that holds it.
        attribute: Its name there.
        off: What replaces it.
        checks: The names of the checks that may judge otherwise.
    """

    def __init__(self, name: str, owner: Any, attribute: str, off: Any, *checks: str) -> None:
        self.name, self.owner, self.attribute, self.off, self.checks = name, owner, attribute, off, checks


def no(*_: Any, **__: Any) -> bool:
    return False


def always_few(values: np.ndarray, rows: int, _: DataLimits) -> np.ndarray:
    few: np.ndarray = values <= rows
    return few


TELLS, EACH, SUM = "a number that predicts the target", "a number that predicts each class", "a sum that is the target"
SAME_INPUTS, RELATION = "inputs that many samples have", "another relation of inputs and targets"
HEURISTICS = [
    Heuristic("a number that predicts the target: not where most numbers do", leak_rules, "MOST_TELLING", math.inf, TELLS, EACH),
    Heuristic("a number that predicts the target: not by chance", leak_rules, "CHANCE", math.inf, TELLS, EACH),
    Heuristic("a number that predicts the target: not of a rare class's few rows", leak_rules, "RARE", 0.0, TELLS, EACH),
    Heuristic("a number that predicts the target: not where new rows may be wrong", leak_rules, "HONEST", math.inf, TELLS, EACH),
    Heuristic(
        "a number that predicts the target: not by a class for each of many values",
        leak_rules,
        "_is_few",
        lambda v, r, _: v <= r,
        TELLS,
    ),
    Heuristic("a number that predicts each class: at all", leak_checks, "MOST_MARKS", -1.0, EACH),
    Heuristic("a number that predicts each class: not where most do", leak_checks, "MOST_MARKS", math.inf, EACH),
    Heuristic("a sum that is the target: only of a few of many numbers", leak_checks, "FEW", 0, SUM),
    Heuristic("a mean of the target: only where samples share a value", leak_rules, "SHARING", 1e-9, "a mean of the target"),
    Heuristic("contradicting labels: not of a small share", value_checks, "CONTRADICTING", 0.0, "contradicting labels"),
    Heuristic("repeated samples: not of inputs with few values", value_checks, "has_few_values", no, "repeated samples"),
    Heuristic(
        "inputs that many samples have: not of few values", value_checks, "has_few_values", no, "inputs that many samples have"
    ),
    Heuristic("units: where both differ by one factor", split_checks, "UNIT", math.inf, "units"),
    Heuristic("units: by medians far apart", split_checks, "APART", math.inf, "units"),
    Heuristic("units: where size and spread differ much", split_checks, "TIMES", math.inf, "units"),
    Heuristic("units: factors of size and spread are the same", split_checks, "SAME", math.inf, "units"),
    Heuristic("units: beyond chance", split_checks, "CHANCE", math.inf, "units"),
    Heuristic("units: of zeros, the others are compared", split_checks, "_varied", lambda one, other: (one, other), "units"),
    Heuristic("units: of all numbers, the largest differ too", split_checks, "END", 0.0, "units"),
    Heuristic("shifted inputs: not where training drifts", split_checks, "_drifts", no, "shifted inputs"),
    Heuristic("shifted inputs and targets: far apart", split_checks, "DISTANT", 0.0, "shifted inputs", "shifted targets"),
    Heuristic("shifted targets: named as capped", split_checks, "_capped", lambda *_: None, "shifted targets"),
    Heuristic("shifted targets: a class's share differs much", split_checks, "OF_CLASS", 0.0, "shifted targets"),
    Heuristic("another relation: inputs are cut", split_checks, "FAR", math.inf, RELATION),
    Heuristic(
        "another relation: the rule holds on training samples",
        split_checks,
        "PREDICTED",
        -math.inf,
        "another relation of inputs and targets",
    ),
    Heuristic("near copies: numbers with one frequent value are left out", split_checks, "MOST_EQUAL", 1.0, "near copies"),
    Heuristic("near copies: of a share of the samples", split_checks, "SHARE", 0.0, "near copies"),
    Heuristic("windows: not where many begin alike", split_checks, "REPEATED", 1.0, "windows of one series"),
    Heuristic("windows: of half of them", split_checks, "SHIFTED", 0.0, "windows of one series"),
    Heuristic("unknown tokens: at all", value_checks, "UNKNOWN", math.inf, "unknown tokens"),
]


def bench_views(only: str) -> Iterator[tuple[str, DataView]]:
    """Yield what the checks see of each labelled case of the diagnostics' benchmark, and of its twin."""
    cases = {case.id: case for cases in KNOWN.values() for case in cases}
    for found in SETS.values():
        cases |= {one.id: one for pair in found for one in (pair.faulty, pair.twin)}
    for name, case in sorted((name, case) for name, case in cases.items() if only in ("", name)):
        with contextlib.suppress(MltrainerError, AttributeError):  # a case that cannot be opened is refused before any check
            yield name, view_of(case)


def view_of(case: Case) -> DataView:
    task = case.task()
    opened = open_task(config_of(case, 0, task), Path.cwd(), task)
    seeds.seed_everything(0)
    with contextlib.suppress(MltrainerError):
        check_model(opened, make_model(opened))
    data: Any = opened._data
    return data._view(DataLimits(), opened.target_kind)  # type: ignore[no-any-return]  # of any kind of task


def made_by_tests() -> Iterator[tuple[str, DataView]]:
    """Yield the data that the tests of the checks make, faulty and sound."""
    kept: list[DataView] = []
    whole = checks.run

    def keeping(checked: Sequence[Any], view: DataView) -> Any:
        kept.append(view)
        return whole(checked, view)

    with mock.patch.object(checks, "run", keeping), contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", "-m", "not slow", "-W", "ignore", *TESTS])
    yield from ((f"test {number}", view) for number, view in enumerate(kept))


def said(view: DataView, names: Sequence[str]) -> Said:
    """Return what some checks say of a view, also where another one has said enough."""
    found: Said = {}
    for name in names:
        check = BY_CHECK[name]
        with np.errstate(all="ignore"):
            found[name] = tuple(one.what for one in check.find(view)) if check.applies_to(view) else ()
    return found


def print_checks(views: list[tuple[str, DataView]]) -> None:
    told = {name: said(view, [*BY_CHECK]) for name, view in views}
    print(f"| check | speaks in, of {len(views)} cases | alone in |\n|---|---:|---:|")
    for check in BY_CHECK:
        speaks = [name for name, found in told.items() if found[check]]
        alone = [name for name in speaks if sum(bool(one) for one in told[name].values()) == 1]
        print(f"| {check} | {len(speaks)} | {len(alone)} |", flush=True)


def print_heuristics(views: list[tuple[str, DataView]], only: str) -> None:
    print(f"| heuristic | cases judged otherwise without it, of {len(views)} |\n|---|---:|")
    for one in HEURISTICS:
        if only in one.name:
            print(f"| {one.name} | {len(changed(one, views))} |", flush=True)


def changed(one: Heuristic, views: list[tuple[str, DataView]]) -> list[str]:
    """Return the cases that are judged otherwise without a heuristic: by whether a check speaks, and of what."""
    found = []
    for case, view in views:
        before = said(view, one.checks)
        with mock.patch.object(one.owner, one.attribute, one.off):
            after = said(view, one.checks)
        found += [case] if before != after else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", action="store_true")
    parser.add_argument("--heuristics", action="store_true")
    parser.add_argument("--only", default="", help="words of the heuristics' names")
    parser.add_argument("--case", default="", help="one case of the benchmark, and none of the tests")
    asked = parser.parse_args()
    views = [*bench_views(asked.case), *([] if asked.case else made_by_tests())]
    both: list[Callable[[], None]] = [lambda: print_checks(views), lambda: print_heuristics(views, asked.only)]
    for wanted, show in zip((asked.checks, asked.heuristics), both, strict=True):
        if wanted or not (asked.checks or asked.heuristics):
            show()


if __name__ == "__main__":
    main()
