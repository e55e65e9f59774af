"""The comparisons of candidates with one plan's baseline, counted: whoever searches until one wins has tested each of them.

A comparison is known by the plan (whatever its seed), the data and the candidate; its number decides its fresh seeds and how
much of the level it may spend. The same candidate found again is no new comparison.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig, bits_config
from mltrainer.errors import InputError
from mltrainer.tasks.multiple_comparisons import fewest_pairs, spent_level
from mltrainer.workspace import digest, read_json, write_json

LEDGER = ".mltrainer/comparisons.json"
MOST_PAIRS = 16  # chosen by us: the exact test and its interval go through 2**n sums with every gate check
KEYS = ("number", "plan_sha256", "data_sha256", "candidate_sha256", "study")

Row = dict[str, Any]


def named(planned: TrainingConfig, candidate: TrainingConfig, data_sha256: str | None, study: str) -> Row:
    """Return a comparison's key: the digests of plan, data and candidate, and its study."""
    without_seed = {key: value for key, value in bits_config(planned).items() if key != "seed"}
    return {
        "plan_sha256": digest(without_seed),
        "data_sha256": data_sha256,
        "candidate_sha256": digest(bits_config(candidate)),
        "study": study,
    }


def counted(row: Row, known: Iterable[Mapping[str, Any]]) -> tuple[int, list[Row]]:
    """Return the number of a comparison and the rows of those before it.

    Args:
        row: As `named`.
        known: Rows of comparisons that were begun, in any order, of any plan; some twice.
    """
    of_plan = {
        str(one["candidate_sha256"]): int(one["number"])
        for one in sorted(known, key=lambda one: -int(one["number"]))  # of one that is there twice, the first number stays
        if (one["plan_sha256"], one["data_sha256"]) == (row["plan_sha256"], row["data_sha256"])
    }
    number = of_plan.get(row["candidate_sha256"], 1 + max([len(of_plan), *of_plan.values()]))
    before = [{"number": nr, "candidate_sha256": name} for name, nr in of_plan.items() if nr < number]
    return number, sorted(before, key=lambda one: (one["number"], one["candidate_sha256"]))


def pairs_of(seeds: int, level: float | None, number: int) -> int:
    """Return the number of pairs in a comparison: at least `seeds`, and enough to reach its share of the level.

    Returns:
        0 where that would take more than `MOST_PAIRS`: nothing could be shown any more.
    """
    least = fewest_pairs(spent_level(level, number)) if level is not None else seeds
    return 0 if least > max(MOST_PAIRS, seeds) else max(seeds, least)


def address(number: int) -> str:
    """Return the purpose of a comparison's fresh seeds, each comparison's own."""
    return "comparison" if number == 1 else f"comparison/{number}"


def ledger(root: Path) -> list[Row]:
    """Return the rows of a project's ledger; none where it was removed or damaged."""
    found = []
    with contextlib.suppress(InputError, KeyError, TypeError, AttributeError):
        found = [row for row in read_json(root / LEDGER)["comparisons"] if is_row(row)]
    return found


def is_row(row: Any) -> bool:
    """Return True where a value is a ledger's row of a comparison."""
    return isinstance(row, Mapping) and all(key in row for key in KEYS) and type(row["number"]) is int and row["number"] > 0


def enter(root: Path, row: Row) -> None:
    """Write a comparison into the ledger before its first run is trained, so that one that was broken off counts."""
    rows = ledger(root)
    if row not in rows:
        write_json(root / LEDGER, {"comparisons": [*rows, row]})
