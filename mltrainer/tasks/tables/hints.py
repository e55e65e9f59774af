"""Hints on a table's columns, a sentence each, given by `init` and by planning: gaps, time, groups, targets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltrainer.tasks.tables.ambiguities import as_key
from mltrainer.tasks.tables.columns import Column
from mltrainer.tasks.tables.schema import Schema, is_day

ROWS_OF_GROUP = 2  # chosen by us: the least mean number of rows a name of a column of groups
ROWS_OF_LEFT_OUT = 1.25  # chosen by us: the same where the column is none of the features, such as ids
ID_CELL = re.compile(r"[A-Za-z]{1,12}[-_ #/]?\d{3,10}")  # letters and a number, such as P-0012
IDS = 0.9  # chosen by us: the least share of a column's texts that look like ids, and that have one length
MOST_EQUAL = 0.8  # chosen by us: the largest share of the rows with one value, of a column that distinguishes persons
LEAST_NAMES = 10  # chosen by us: fewer names than that are categories
BELONGS = re.compile(
    # At the end of the name, with or without a word for an id: number_customer_service_calls and person_income are quantities.
    r"(^|[_ .-])(id|uuid|guid|nr)([_ .-]|\d|$)|(patient|customer|user|subject|person)[_ .-]?(id|nr|no|number|code|key|name)?$",
    re.IGNORECASE,
)
MOST_ASKED = 2  # chosen by us: of more columns with such names, only those on which another one depends
PARTS = {"year": (1000, 3000), "month": (1, 12), "day": (1, 31)}  # the parts of a date as separate columns, and their values
CODE_NAME = re.compile(
    r"(^|[_ .-])(zip|zipcode|plz|post(al)?_?code|code|class|label|category|type|id)([_ .-]|\d|$)", re.IGNORECASE
)
LEAST_AMOUNTS = 4  # chosen by us: of fewer whole numbers without a gap, hardly any target is an amount
MOST_NAMES = 500  # chosen by us: with more distinct whole numbers, a target is a quantity
ROWS_PER_NAME = 5  # chosen by us: the least mean number of rows a class
HEAVY = 0.5  # chosen by us: the share of the target's variance in a hundredth of the rows; 0.1 for a normal target
LEAST_ROWS = 20  # chosen by us: of fewer, one row may hold most of any variance
SQUARED = ("r2", "rmse", "loss")  # metrics that a few large deviations decide


def table_hints(schema: Schema, by_time: bool = False, by_group: bool = False, left_out: Sequence[Column] = ()) -> list[str]:
    """Return the hints on a table's features: gaps, time, and rows that belong together.

    Args:
        schema: The table.
        by_time: Whether it is split by time already.
        by_group: Whether it is split by a column already.
        left_out: Columns that are no features, by which rows may still belong together.
    """
    groups = [] if by_time or by_group else _groups(schema, left_out)
    return [*_gaps(schema), *([] if by_time else _moments(schema)), *groups]


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


def amounts_hint(target: Column) -> list[str]:
    """Return a hint at regression, where the whole numbers that are read as classes may count or rank."""
    numbers = np.unique(target.values[~target.missing])
    few = len(numbers) < LEAST_AMOUNTS
    if target.kind != "number" or few or numbers[0] not in (0, 1) or numbers[-1] - numbers[0] != len(numbers) - 1:
        return []
    return [f"if the whole numbers of {target.name!r} count or rank, write task: {{kind: tabular_regression}}"]


def heavy_tail(name: str, values: np.ndarray, metric: str) -> list[str]:
    """Return a sentence on the few rows with most of a target's variance, where they alone decide a metric of squares.

    Args:
        name: The target's name.
        values: The values of the examined rows.
        metric: The project's metric.
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
    hint = f"{asked} columns {names} give the time: make one column of them, such as {written}, and write split: {{time: COLUMN}}"
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


def _groups(schema: Schema, left_out: Sequence[Column]) -> list[str]:
    """Return questions on rows of one person or thing, where a column's name or cells suggest it, or others depend on it."""
    features = [column for column in schema.features if column.kind not in ("text", "date", "date_day_first")]
    named = [column for column in features if BELONGS.search(column.name) or is_named_as_id(column.name)]
    called = [column for column in named if _is_grouping(column, ROWS_OF_GROUP)]
    found = [c for c in called if len(called) <= MOST_ASKED or any(_hangs(one, c) for one in schema.features if one is not c)]
    coded = [column for column in features if column not in named and _has_ids(column) and _is_grouping(column, ROWS_OF_GROUP)]
    # A code alone may be a product's or a place's: a column with one value for all rows of a person shows that it is a person's.
    found += [c for c in coded if any(_hangs(one, c) and _varies(one) for one in schema.features if one is not c)]
    others = {column.name: agreement(column, [*schema.features, *schema.targets]) for column in left_out}
    repeated = [c for c in left_out if (BELONGS.search(c.name) or _has_ids(c)) and _is_grouping(c, ROWS_OF_LEFT_OUT)]
    found += [c for c in left_out if c in repeated or others[c.name] is not None]
    text = "do rows of one {!r} belong together?{} split: {{group: {}}} keeps them in one split, and out of the features"
    return [text.format(c.name, f" {why}:" if (why := others.get(c.name)) else "", as_key(c.name)) for c in found]


def _is_grouping(column: Column, rows: float) -> bool:
    """Return True if a column has enough names to split by, and at least `rows` rows for each in the mean."""
    size = column.distinct(np.arange(len(column.values)))
    return size >= LEAST_NAMES and rows * size <= len(column.values)


def _has_ids(column: Column) -> bool:
    """Return True if nearly all texts of a column are letters and a number of one length, such as P-0012."""
    texts = column.texts
    if not column.is_category or len(texts) < LEAST_NAMES:
        return False
    alike = sum(bool(ID_CELL.fullmatch(text)) for text in texts)
    lengths = Counter(map(len, texts)).most_common(1)[0][1]
    return min(alike, lengths) >= IDS * len(texts)


def _varies(column: Column) -> bool:
    """Return True if no value of a column has most rows; such a column would depend on any other."""
    _, counts = np.unique(column.values, return_counts=True)
    return bool(counts.max() <= MOST_EQUAL * len(column.values))


def _hangs(column: Column, on: Column) -> bool:
    """Return True if a column that varies has one value for nearly each value of another, as a patient has one year of birth."""
    first, second = (np.unique(one.values, return_inverse=True)[1] for one in (on, column))
    values = len(np.unique(second))
    pairs = len(np.unique(first.astype(np.int64) * values + second))
    return values > 1 and pairs <= 1.05 * len(np.unique(first))


NAMES = "id|uuid|guid|index|idx|row|rownum|nr|unnamed|vin|isbn|imei|iban"
OF_ONE = (
    "customer|client|user|patient|passenger|order|account|member|employee|student|transaction|invoice|record|case|subject|loan"
)
ID_NAME = re.compile(rf"(^|[_ .-])({NAMES})([_ .-]|\d|$)|({OF_ONE})[_ .-]?(id|no|nr|num|number|code|key|ref)$", re.IGNORECASE)
ROWS_OF_ONE = 3  # chosen by us: with more rows for each name, predictions may be for the same names again
FEWEST = 10  # chosen by us: pairs of rows; fewer agree by chance soon
BEYOND = 0.3  # chosen by us: the least excess of the share of agreeing pairs over chance
DEVIATIONS = 4.0  # chosen by us: standard deviations from chance; one of 15,000 columns is as far off


def is_named_as_id(name: str) -> bool:
    """Return True if a column's name is usual for ids, such as CustomerID."""
    return bool(ID_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)))


@dataclass(frozen=True)
class Agreement:
    """The agreement of rows with one name in another column.

    Attributes:
        column: The other column's name.
        pairs: Number of pairs of such rows, each row with the next one.
        share: The share of these pairs that agree.
        chance: The share among pairs of rows with different names.
    """

    column: str
    pairs: int
    share: float
    chance: float

    @property
    def is_clear(self) -> bool:
        """Whether the agreement is beyond chance."""
        error = max(self.chance * (1 - self.chance), 1 / self.pairs) ** 0.5 / self.pairs**0.5
        return self.pairs >= FEWEST and self.share - self.chance >= max(BEYOND, DEVIATIONS * error)

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.pairs} pairs of its rows agree in {self.column!r}, {self.chance:.0%} of other pairs do"


def agreement(names: Column, others: Sequence[Column]) -> Agreement | None:
    """Return the clearest agreement of rows with one name, or None where rows agree no more than by chance.

    Args:
        names: The column of the names.
        others: Columns of the same rows.
    """
    first, second = _pairs(names)
    if len(first) < FEWEST:
        return None
    # The same rows in other pairs, half of all names apart.
    elsewhere = np.roll(second, len(second) // 2)
    found = [Agreement(c.name, len(first), _equal(c, first, second), _equal(c, first, elsewhere)) for c in others]
    return max((one for one in found if one.is_clear), key=lambda one: one.share - one.chance, default=None)


def _pairs(names: Column) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of each two with one name that follow one another in the table."""
    rows = np.flatnonzero(~names.missing)
    ordered = rows[np.argsort(names.values[rows], kind="stable")]
    is_same = names.values[ordered[1:]] == names.values[ordered[:-1]]
    return ordered[:-1][is_same], ordered[1:][is_same]


def _equal(column: Column, first: np.ndarray, second: np.ndarray) -> float:
    """Return the share of some pairs of rows with equal values, of those that have both."""
    known = ~(column.missing[first] | column.missing[second])
    return float((column.values[first] == column.values[second])[known].mean()) if known.any() else 0.0
