"""Leakage: columns that tell the target alone, as a copy under another scale, or together; findings with the columns named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mltrainer.configs.items import DataLimits
from mltrainer.tasks import data_findings
from mltrainer.tasks.data_findings import Finding
from mltrainer.tasks.spacing import evenly_spaced
from mltrainer.tasks.tables.columns import Column

EXACT = 1e-9  # share of the target's variance that rounding may leave unexplained
LOOKED_AT = 100_000  # training rows, evenly spaced, that are looked at
SAMPLE = 20_000  # training rows that are looked at for columns that give the target together
MOST_COLUMNS = 200
KNOWN = 0.5  # share of the rows that must have values


@dataclass(frozen=True)
class Target:
    """The target: a column, and its classes.

    Attributes:
        target: The column.
        labels: Class numbers of all rows; None where a quantity is predicted.
        classes: How many there are; 0 for a quantity.
    """

    target: Column
    labels: np.ndarray | None
    classes: int

    def values(self, rows: np.ndarray) -> np.ndarray:
        """Return the class numbers or values of some rows."""
        found: np.ndarray = (self.target.values if self.labels is None else self.labels)[rows]
        return found


def leakage_findings(
    columns: list[Column], wanted: Target, vocabulary: Mapping[str, list[str]], train: np.ndarray, limits: DataLimits
) -> list[Finding]:
    """Return the findings on columns that tell the target in the training rows.

    Args:
        columns: The features.
        wanted: The target.
        vocabulary: The categories that training has seen, by column.
        train: The training rows.
        limits: Hold how well a column must tell it.
    """
    rows = evenly_spaced(train, LOOKED_AT)
    alone = [_alone(column, wanted, vocabulary.get(column.name), rows, limits, len(columns)) for column in columns]
    found = [one for one in alone if one is not None]
    sure = any(one.severity == "error" for one in found)
    # A column that is the target would be a part of every exact sum as well, and be named twice.
    return found if wanted.classes or sure else found + _together(columns, wanted.target, rows)


def _alone(
    column: Column, wanted: Target, vocabulary: list[str] | None, rows: np.ndarray, limits: DataLimits, columns: int
) -> Finding | None:
    values, target = column.values[rows], wanted.target
    same_form = column.kind == target.kind and column.texts == target.texts
    if same_form and np.array_equal(values, target.values[rows], equal_nan=values.dtype == np.float64):
        return data_findings.equal_finding(column.name)
    if wanted.labels is None and _is_scaled(column, target, rows):
        text = f"leakage: column {column.name!r} is the target under another scale; name it in data.ignore"
        return Finding("error", text)
    if values.dtype != np.float64:
        if wanted.labels is None or vocabulary is None:
            return None  # categories have no order that a value could follow
        codes = column.block(rows, vocabulary)[:, 0].astype(np.float64)
        values = np.where(codes < 0, np.nan, codes)
    return data_findings.leak_finding(column.name, values, wanted.values(rows), wanted.classes, limits, columns)


def _is_scaled(column: Column, target: Column, train: np.ndarray) -> bool:
    """Return True if a column is the target times a factor plus a constant, in nearly every row, and wherever it is known."""
    if column.values.dtype != np.float64:
        return False
    known = train[~np.isnan(column.values[train])]
    values, wanted = column.values[known], target.values[known]
    # A line runs through any two points.
    if len(known) < max(3, KNOWN * len(train)) or values.std() == 0 or wanted.std() == 0:
        return False
    return bool(1 - np.corrcoef(values, wanted)[0, 1] ** 2 < EXACT)


def _together(columns: list[Column], target: Column, train: np.ndarray) -> list[Finding]:
    """Return a finding where a line through some number columns gives the target; their plain sum is surely leakage."""
    rows = evenly_spaced(train, SAMPLE)
    numbers = [c for c in columns if c.values.dtype == np.float64 and c.width == 1]
    # Gaps may lie in different rows: where each column lacks no more than its part of what may be missing,
    # enough whole rows are left all the same.
    numbers = [c for c in numbers if np.isnan(c.values[rows]).mean() <= (1 - KNOWN) / len(numbers)]
    rows = rows[~np.any([np.isnan(c.values[rows]) for c in numbers], axis=0)] if numbers else rows
    varying = [c for c in numbers if len(rows) and c.values[rows].std() > 0]
    wanted = target.values[rows]
    # Nearly as many columns as rows fit any target exactly.
    if not 2 <= len(varying) <= min(MOST_COLUMNS, len(rows) // 5) or wanted.std() == 0:
        return []
    matrix = np.stack([c.values[rows] for c in varying], axis=1)
    scaled = (matrix - matrix.mean(axis=0)) / matrix.std(axis=0)
    weights, *_ = np.linalg.lstsq(scaled, wanted - wanted.mean(), rcond=None)
    left = wanted - wanted.mean() - scaled @ weights
    if left.var() > EXACT * wanted.var():
        return []
    used = [nr for nr, weight in enumerate(weights) if abs(weight) > 1e-6 * wanted.std()]
    names = ", ".join(repr(varying[nr].name) for nr in used)
    factors = np.array([weights[nr] / matrix[:, nr].std() for nr in used])
    if len(used) > 1 and np.allclose(np.abs(factors), 1, atol=1e-4):
        text = f"leakage: {names} together give the target, as their {'sum' if (factors > 0).all() else 'sum and difference'}"
        return [Finding("error", f"{text}; name at least one of them in data.ignore")]
    return [Finding("warning", f"{names} together give the target exactly: are they known before the target is?")]
