"""Whether new rows are like those that a model was trained on: the population stability index of each column.

The index sums (p - q) ln(p / q) over the bins of the training rows: tenths for numbers, the categories themselves. Below 0.1
populations are taken for the same, above 0.25 for another one (Siddiqi, 2006, Credit Risk Scorecards, chapter 9).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.records.common import Part
from mltrainer.records.partial import partial

ANOTHER = 0.25
LEAST_ROWS = 50  # chosen by us: of fewer rows, tenths say nothing


class _Training(Part):
    """What a column of the training rows held: the shares of its categories, or those between edges; and of missing values."""

    shares: list[float] | None
    edges: list[float]
    bins: list[float]
    missing: float


@dataclass(frozen=True)
class Drift:
    """A column whose new values are of another population than the training rows'.

    Attributes:
        column: Its name.
        index: The population stability index, above 0.25.
        missing: The share of new values that are missing.
    """

    column: str
    index: float
    missing: float

    def __str__(self) -> str:
        return (
            f"column {self.column!r} is not what it was in training: "
            f"population stability index {self.index:.2f}, above {ANOTHER:g}"
        )


def drifted(folder: Path, rows: Path) -> list[Drift]:
    """Return the columns of a table whose values are of another population than the training rows', the worst first.

    Args:
        folder: Of the delivered model; its inference.json says what the training rows held.
        rows: The new rows.

    Returns:
        No column where the model reads no table, or for fewer than 50 rows.
    """
    spec = json.loads((folder / "inference.json").read_text("utf-8"))
    columns = [column for column in spec.get("columns") or [] if "training" in column]
    if not columns:
        return []
    from mltrainer.checkpointing import inference_script

    table = inference_script.read_rows(rows, spec.get("header", True))
    if len(table) < LEAST_ROWS:
        return []
    missing = spec.get("missing", inference_script.MISSING)
    found = []
    for column in columns:
        values = inference_script.parsed(table, column, missing)
        index, gone = _index(partial(_Training, column["training"]), values)
        found.append(Drift(column["name"], index, gone))
    return sorted((row for row in found if row.index > ANOTHER), key=lambda row: -row.index)


def _index(training: _Training, values: Any) -> tuple[float, float]:
    """Return the index of some values and the share of missing ones, which are a bin of their own."""
    import numpy as np

    # -1 is the code of a category that is missing, or that training did not have.
    gone = np.isnan(values) | (np.less(values, 0) if training.shares is not None else False)
    if training.shares is not None:
        counts = np.bincount(values[~gone].astype(np.int64), minlength=len(training.shares))
        expected = training.shares
    else:
        counts = np.histogram(values[~gone], bins=[-math.inf, *training.edges, math.inf])[0]
        expected = training.bins
    actual = [*(counts / len(values)), float(gone.mean())]
    pairs = zip([*expected, training.missing], actual, strict=True)
    # A bin that is empty on one side would make the logarithm infinite, and with it the index.
    return sum(_part(max(p, 1e-4), max(float(q), 1e-4)) for p, q in pairs), float(gone.mean())


def _part(p: float, q: float) -> float:
    return (q - p) * math.log(q / p)
