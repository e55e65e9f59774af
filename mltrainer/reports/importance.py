"""The importance of a search's dimensions: the difference of the best trials' values from all trials' (PED-ANOVA).

Watanabe, Bansal and Hutter, 2023, PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces, arXiv
2304.10255: the importance of a dimension is the Pearson divergence of its distribution among the best trials from that among
all. Where the paper estimates both with kernels, cells of equal counts are used here. The divergence times the number of best
trials is then Pearson's chi-squared statistic, so that its value by chance alone is known, and subtracted.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mltrainer.records.optimization import Trial
from mltrainer.reports.space import Dimension, name_of
from mltrainer.reports.values import as_float

MIN_TRIALS = 20  # chosen by us: with fewer, the best tenth is no group that could differ from the others
TOP = 0.1  # the best tenth, as in the paper; of fewer than 400 trials more, so that they are a group
CELLS = (4, 8)
RANKED = ("finished", "pruned")
LEVEL = 0.05  # divided by the number of dimensions (Bonferroni)


@dataclass(frozen=True)
class Importance:
    """The importance of a dimension.

    Attributes:
        dimension: The dimension.
        trials: The number of trials that had it and could be ranked.
        top: The number of them that count as the best.
        divergence: The Pearson divergence of the best trials from all, less the divergence by chance; 0 or more.
        share: Its share of all dimensions' divergences.
        p_value: The probability of at least this divergence by chance.
        is_clear: Whether chance is ruled out at `LEVEL` over all dimensions.
    """

    dimension: Dimension
    trials: int
    top: int
    divergence: float
    share: float
    p_value: float
    is_clear: bool


def ranked(trials: Sequence[Trial], mode: str) -> list[Trial]:
    """Return the trials with a finite value, the best first; trials stopped at a rung come last, the latest stopped first."""
    sign = 1.0 if mode == "min" else -1.0
    kept = [(-_reached(trial), sign * as_float(trial.value), trial.nr, trial) for trial in trials if trial.state in RANKED]
    # Without the trial itself, which has no order: where values are equal, its number decides.
    return [row[3] for row in sorted((row for row in kept if math.isfinite(row[1])), key=lambda row: row[:3])]


def _reached(trial: Trial) -> float:
    return math.inf if trial.state == "finished" else as_float(trial.pruned_at or 0)


def top_count(trials: int) -> int:
    """Return the size of PED-ANOVA's top set for a number of ranked trials."""
    return max(1, math.ceil(TOP * trials), min(trials // 4, math.ceil(2 * math.sqrt(trials))))


def importances(dimensions: Sequence[Dimension], trials: Sequence[Trial]) -> list[Importance]:
    """Return each dimension's importance, the largest first; empty with fewer than `MIN_TRIALS` trials.

    Args:
        dimensions: The dimensions of the space.
        trials: The ranked trials, the best first.
    """
    found = [(dimension, *measured) for dimension in dimensions if (measured := _divergence(dimension, trials))]
    whole = math.fsum(row[3] for row in found)
    rows = [
        Importance(dimension, count, top, size, size / whole if whole else 0.0, chance, chance <= LEVEL / len(found))
        for dimension, count, top, size, chance in found
    ]
    return sorted(rows, key=lambda row: (-row.share, row.p_value, row.dimension.key))


def _divergence(dimension: Dimension, trials: Sequence[Trial]) -> tuple[int, int, float, float] | None:
    """Return number of trials, number of best ones, divergence less chance, and p-value; None with too few trials or values."""
    values = [trial.values[dimension.key] for trial in trials if dimension.key in trial.values]
    count, top = len(values), top_count(len(values))
    if count < MIN_TRIALS:
        return None
    cells = _cells(dimension, values, min(CELLS[1], max(CELLS[0], top // 3)))
    everywhere, among_best = Counter(cells), Counter(cells[:top])
    if len(everywhere) < 2:
        return None
    size = math.fsum((among_best[cell] / top - n / count) ** 2 / (n / count) for cell, n in everywhere.items())
    freedom, by_chance = len(everywhere) - 1, (count - top) / (count - 1) / top  # the best are drawn without replacement
    return count, top, max(0.0, size - freedom * by_chance), chi_squared_tail(size / by_chance, freedom)


def _cells(dimension: Dimension, values: Sequence[Any], wanted: int) -> list[Any]:
    """Return each value's cell: its own for choices, else one of `wanted` cells with about the same number of trials."""
    if dimension.form == "choice":
        return [name_of(value) for value in values]
    numbers = [as_float(value) for value in values]
    order = sorted(numbers)
    ends = [order[len(order) * nr // wanted] for nr in range(1, wanted)]
    return [bisect.bisect_right(ends, value) for value in numbers]


def chi_squared_tail(statistic: float, freedom: int) -> float:
    """Return the probability of a chi-squared value at least this large (Abramowitz and Stegun, 26.4.4-5)."""
    half, odd = statistic / 2, freedom % 2
    if half > 700:
        return 0.0  # the exponential below would be zero, too
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    term = math.exp(-half) * (math.sqrt(half / math.pi) * 2 if odd else 1.0)
    for nr in range(freedom // 2):
        total += term
        term *= half / (nr + 1.5 if odd else nr + 1)
    return min(1.0, total)
