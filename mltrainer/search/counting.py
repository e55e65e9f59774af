"""The number of comparisons of candidates with one plan's baseline: a search until one wins has tested each of them.

A comparison is known by the plan (without its seed), the data and the candidate; its number decides its fresh seeds and its
share of the significance level. The same candidate found again is no new comparison.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.errors import InputError
from mltrainer.records.common import dumped
from mltrainer.records.optimization import ComparisonKey, CountedComparison, Earlier
from mltrainer.tasks.statistics import fewest_pairs, spent_level
from mltrainer.workspace import read_json, write_json

LEDGER = ".mltrainer/comparisons.json"
MOST_PAIRS = 16  # chosen by us: the exact test and its interval go through 2**n sums with every gate check


def key_of(planned: TrainingConfig, candidate: TrainingConfig, data_sha256: str | None, study: str) -> ComparisonKey:
    """Return a comparison's key."""
    return ComparisonKey(
        plan_sha256=config_digest(planned.model_copy(update={"seed": 0})),  # without the seed
        data_sha256=data_sha256,
        candidate_sha256=config_digest(candidate),
        study=study,
    )


def counted(key: ComparisonKey, known: Iterable[CountedComparison]) -> tuple[int, list[Earlier]]:
    """Return the number of a comparison and those before it.

    Args:
        key: The comparison's key.
        known: The comparisons that were begun, of any plan, in any order, some of them twice.
    """
    of_plan = {
        one.candidate_sha256: one.number
        for one in sorted(known, key=lambda one: -one.number)  # a comparison that is there twice keeps its first number
        if (one.plan_sha256, one.data_sha256) == (key.plan_sha256, key.data_sha256)
    }
    number = of_plan.get(key.candidate_sha256, 1 + max([len(of_plan), *of_plan.values()]))
    before = [Earlier(number=nr, candidate_sha256=name) for name, nr in of_plan.items() if nr < number]
    return number, sorted(before, key=lambda one: (one.number, one.candidate_sha256))


def pairs_of(seeds: int, level: float | None, number: int) -> int:
    """Return the number of pairs in a comparison: at least `seeds`, and enough to reach its share of the level.

    Returns:
        0 where that would take more than `MOST_PAIRS`: no improvement could be shown any more.
    """
    least = fewest_pairs(spent_level(level, number)) if level is not None else seeds
    return 0 if least > max(MOST_PAIRS, seeds) else max(seeds, least)


def address(number: int) -> str:
    """Return the purpose of a comparison's fresh seeds, another one for each comparison."""
    return "comparison" if number == 1 else f"comparison/{number}"


def ledger(root: Path) -> list[CountedComparison]:
    """Return the comparisons of a project's ledger; none where it was removed or damaged."""
    with contextlib.suppress(InputError, TypeError, AttributeError):
        return comparisons(*read_json(root / LEDGER).values())
    return []


def comparisons(rows: Any) -> list[CountedComparison]:
    """Return the comparisons among rows of a ledger; rows of another form are left out."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(ValidationError):
            found.append(CountedComparison.model_validate(row))
    return found


def enter(root: Path, comparison: CountedComparison) -> None:
    """Write a comparison into the ledger before its first run is trained, so that an aborted comparison counts."""
    known = ledger(root)
    if comparison not in known:
        write_json(root / LEDGER, {"comparisons": dumped([*known, comparison])})
