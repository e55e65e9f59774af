"""Evidence that rows with one name belong together: they agree in other columns more often than two rows by chance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltrainer.tasks.tables.columns import Column

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
