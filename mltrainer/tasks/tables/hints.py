"""Hints on a table's columns, a sentence each, given by `init` and by planning: gaps, time, groups, targets."""

from __future__ import annotations

import re

import numpy as np

from mltrainer.tasks.tables.ambiguities import as_key
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.schema import Schema, is_day

ROWS_OF_ONE = 2  # chosen by us: so many rows for each name, in the mean, are groups
LEAST_NAMES = 10  # chosen by us: fewer names than that are categories
BELONGS = re.compile(r"(^|[_ .-])(id|uuid|guid|nr)([_ .-]|\d|$)|patient|customer|user|subject|person", re.IGNORECASE)
MOST_ASKED = 2  # chosen by us: of more columns that are called so, only those on which another one hangs
PARTS = {"year": (1000, 3000), "month": (1, 12), "day": (1, 31)}  # the parts of a date as columns of their own, and their values
CODE_NAME = re.compile(
    r"(^|[_ .-])(zip|zipcode|plz|post(al)?_?code|code|class|label|category|type|id)([_ .-]|\d|$)", re.IGNORECASE
)
MOST_NAMES = 500  # chosen by us: with more distinct whole numbers, a target is a quantity
ROWS_PER_NAME = 5  # chosen by us: classes have so many rows in the mean
HEAVY = 0.5  # chosen by us: a hundredth of the rows with so much of the target's variance; of a normal one they have 0.1
LEAST_ROWS = 20  # chosen by us: of fewer, one row may hold most of any variance
SQUARED = ("r2", "rmse", "loss")  # metrics that a few large deviations decide


def table_hints(schema: Schema, by_time: bool = False, by_group: bool = False) -> list[str]:
    """Return the hints on a table's features: gaps, time, and rows that belong together.

    Args:
        schema: The table.
        by_time: Whether it is split by time already.
        by_group: Whether it is split by a column already.
    """
    return [*_gaps(schema), *([] if by_time else _moments(schema)), *([] if by_time or by_group else _groups(schema))]


def names_hint(target: Column) -> list[str]:
    """Return a hint at classification, where whole numbers may be names, such as postal codes."""
    numbers, counts = np.unique(target.values[~target.missing], return_counts=True)
    whole = bool((numbers == np.floor(numbers)).all())
    if not whole or len(numbers) > MOST_NAMES or counts.mean() < ROWS_PER_NAME:
        return []
    lengths = {len(str(int(abs(number)))) for number in numbers}
    if not CODE_NAME.search(target.name) and (len(lengths) > 1 or lengths.pop() < 4 or _is_year(numbers)):
        return []
    return [f"if the whole numbers of {target.name!r} are names and no quantities, write task: {{kind: tabular_classification}}"]


def heavy_tail(name: str, values: np.ndarray, metric: str) -> list[str]:
    """Return a sentence on the few rows with most of a target's variance, where a metric of squares is judged by them alone.

    Args:
        name: The target's.
        values: Of the rows that are looked at.
        metric: The project's.
    """
    squares = np.sort(np.square(values - values.mean()))
    few = max(1, len(squares) // 100)
    # A constant target has no variance to share: 0 / 0 would be NaN.
    share = squares[-few:].sum() / max(squares.sum(), np.finfo(np.float64).tiny)
    if share <= HEAVY or len(squares) < LEAST_ROWS:
        return []
    what = f"{few} of {len(squares)} rows hold {share:.0%} of the variance of {name!r}"
    if metric in SQUARED:
        return [f"{what}: {metric} is judged by them alone; write metric: {{name: mae, mode: min}}"]
    return [f"{what}: r2 would be judged by them alone, so the metric is {metric}"]


def _is_year(numbers: np.ndarray) -> bool:
    return bool(numbers.min() >= 1800 and numbers.max() <= 2200)


def _gaps(schema: Schema) -> list[str]:
    gaps = [(c.name, int(c.missing.sum())) for c in schema.features]
    return [f"column {name!r} is missing in {count} of {len(schema)} rows" for name, count in gaps if 2 * count > len(schema)]


def _moments(schema: Schema) -> list[str]:
    """Return a question on splitting by time, where there are columns of dates, or of their parts."""
    asked = "is what you will predict later than what you have?"
    dates = [column.name for column in schema.features if is_day(column)]
    if dates:
        return [f"{asked} split: {{time: {as_key(dates[0])}}} trains on the past and tests on the future"]
    parts = {part: column.name for part in PARTS for column in schema.features if _is_part(column, part)}
    if not {"year", "month"} <= parts.keys():
        return []
    names = ", ".join(map(repr, parts.values()))
    written = "-".join(("2014", "10", "13")[: len(parts)])
    hint = f"{asked} columns {names} tell when: make one column of them, such as {written}, and write split: {{time: COLUMN}}"
    return [f"{hint}, which trains on the past and tests on the future"]


def _is_part(column: Column, part: str) -> bool:
    """Return True if a column holds a part of a date, by its name and its values."""
    # Capitals part words too, so that saleYear names a year.
    words = re.split(r"[\W_\d]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name).lower())
    if column.kind != "number" or part not in words or column.missing.all():
        return False
    low, high = PARTS[part]
    known = column.values[~column.missing]
    return bool((known == np.floor(known)).all() and known.min() >= low and known.max() <= high)


def _groups(schema: Schema) -> list[str]:
    """Return questions on rows of one person or thing, where a column's name says so, or others depend on it."""
    named = [c for c in schema.features if c.kind not in ("text", "date", "date_day_first") and BELONGS.search(c.name)]
    sizes = [column.distinct(np.arange(len(schema))) for column in named]
    called = [c for c, size in zip(named, sizes, strict=True) if size >= LEAST_NAMES and ROWS_OF_ONE * size <= len(schema)]
    found = [
        c.name for c in called if len(called) <= MOST_ASKED or any(_hangs(one, c) for one in schema.features if one is not c)
    ]
    text = "do rows of one {!r} belong together? split: {{group: {}}} keeps them in one split, and out of the features"
    return [text.format(name, as_key(name)) for name in found]


def _hangs(column: Column, on: Column) -> bool:
    """Return True if a column that varies has one value for nearly each value of another, as a patient has one year of birth."""
    first, second = (np.unique(one.values, return_inverse=True)[1] for one in (on, column))
    values = len(np.unique(second))
    pairs = len(np.unique(first.astype(np.int64) * values + second))
    return values > 1 and pairs <= 1.05 * len(np.unique(first))
