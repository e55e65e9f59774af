"""The steps from which a run computes its samples in more micro-batches, because memory ran out there: a file in its folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mltrainer.records.partial import partial
from mltrainer.records.run import Split
from mltrainer.workspace import read_if_whole, write_json

SPLITS_FILE = "splits.json"


def read_splits(folder: Path) -> list[Split]:
    """Return the splits of a run, in the order in which memory ran out."""
    return [partial(Split, row) for row in (read_if_whole(folder / SPLITS_FILE) or {}).get("splits", [])]


def write_splits(folder: Path, splits: Iterable[Split]) -> None:
    """Write the splits of a run, which decide its bits, to its folder."""
    write_json(folder / SPLITS_FILE, {"splits": [split.written() for split in splits]})


def accumulated(splits: Iterable[Split], step: int, planned: int) -> int:
    """Return the number of micro-batches of a step; `planned`: that of the config."""
    return max((split.accumulate for split in splits if split.step <= step), default=planned)
