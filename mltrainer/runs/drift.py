"""Whether new rows are like a model's training rows: the population stability index of each column.

The index sums (p - q) ln(p / q) over the bins of the training rows: tenths for numbers, the categories themselves. Below 0.1
populations are taken for the same, above 0.25 for another one (Siddiqi, 2006, Credit Risk Scorecards, chapter 9).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.records.common import Part
from mltrainer.records.partial import partial

ANOTHER = 0.25
LEAST_ROWS = 50  # chosen by us: of fewer rows, tenths say nothing


class _Training(Part):
    """A column's training values: the shares of its categories, or of its bins between edges; and of missing values."""

    shares: list[float] | None
    edges: list[float]
    bins: list[float]
    missing: float


@dataclass(frozen=True)
class Drift:
    """A column whose new values are from another population than the training rows'.

    Attributes:
        column: Its name.
        index: The population stability index, above 0.25.
        missing: The share of new values that are missing.
    """

    column: str
    index: float
    missing: float

    def __str__(self) -> str:
        return f"column {self.column!r} differs from training: population stability index {self.index:.2f}, above {ANOTHER:g}"


def drifted(folder: Path, rows: Path) -> list[Drift]:
    """Return the columns of a table whose values are from another population than the training rows', the worst first.

    Args:
        folder: The folder of the delivered model; its inference.json describes the training rows.
        rows: The new rows.

    Returns:
        No column where the model reads no table, or for fewer than 50 rows.
    """
    spec = json.loads((folder / "inference.json").read_text("utf-8"))
    if not _columns(spec):
        return []
    from mltrainer.checkpointing import inference_script

    table = inference_script.read_table(rows, spec)
    if len(table) < LEAST_ROWS:
        return []
    drifts = (Drift(row.column, row.index, row.actual[-1]) for row in compared(spec, table))
    return sorted((row for row in drifts if row.index > ANOTHER), key=lambda row: -row.index)


@dataclass(frozen=True)
class Shares:
    """A column's shares of values by bin; the last bin is of missing values.

    Attributes:
        column: Its name.
        expected: The shares of the training rows in each bin.
        actual: Those of the new rows.
    """

    column: str
    expected: list[float]
    actual: list[float]

    @property
    def index(self) -> float:
        """The population stability index."""
        return stability_index(self.expected, self.actual)


def compared(spec: Mapping[str, Any], table: list[dict[str, str]]) -> list[Shares]:
    """Return the columns' values beside the training rows', whose distribution is in a model's description.

    Args:
        spec: The model's `inference.json`.
        table: The new rows, as text.
    """
    from mltrainer.checkpointing import inference_script

    missing = spec.get("missing", inference_script.MISSING)
    shares = []
    for column in _columns(spec):
        values = inference_script.parsed(table, column, missing)
        shares.append(Shares(column["name"], *_shares(partial(_Training, column["training"]), values)))
    return shares


def _columns(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [column for column in spec.get("columns") or [] if "training" in column]


def _shares(training: _Training, values: Any) -> tuple[list[float], list[float]]:
    """Return the shares of the training rows and of some values in the same bins; missing ones are a separate bin."""
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
    return [*expected, training.missing], [float(share) for share in actual]


def stability_index(expected: Iterable[float], actual: Iterable[float]) -> float:
    """Return the population stability index of two distributions, by their shares in the same bins."""
    # A bin that is empty on one side would make the logarithm infinite, and with it the index.
    return sum(_part(max(float(p), 1e-4), max(float(q), 1e-4)) for p, q in zip(expected, actual, strict=True))


def _part(p: float, q: float) -> float:
    return (q - p) * math.log(q / p)
