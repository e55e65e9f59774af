"""A table's columns as vectors, which a network learns with its other weights; the bins of numbers are fitted before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.project import TableModel
from mltrainer.tasks.tables.encoder import Statistics, ordered, whole_or

CLIP = 3.0  # deviations that no number exceeds after smooth clipping: Holzmüller et al., 2024, arXiv 2407.04491
NARROWEST = 1e-6  # deviations: a narrower bin is below float32's resolution, and its inverse could overflow
LEAST_CODES = 20  # chosen by us: fewer distinct numbers are separated by the pieces
CODE_ROWS, LEAST_ROWS = 4, 2  # chosen by us: the mean training rows of a whole number, and the fewest for a vector of one
FOLDS, EFFECT_ROWS = 4, 20_000  # chosen by us: folds of the training rows that test numbers for effects, and the most rows
TREND_BINS = 16  # chosen by us: pieces of the trend beside which an effect must show
SHRINKAGE = 5.0  # chosen by us: rows' worth of evidence that a number has no effect
LEAST_GAIN = 0.002  # chosen by us: share of the target's variance that effects must explain beside the trend
SURE = 3.0  # chosen by us: standard errors of that share
WIDEST = 100_000  # chosen by us: the range of the numbers of such a column, such as postal codes
TINY = 1e-300  # in place of the deviation of a target that is constant
EXACT = 2**24  # float32 is exact for whole numbers up to here
FREQUENCIES = 16  # sines and cosines of one number, each: the small end of the search in arXiv 2203.05556
FREQUENCY = 0.1  # deviation of the first frequencies: the small end, too


def fit_edges(matrix: np.ndarray, statistics: Statistics, bins: int) -> list[np.ndarray]:
    """Return the edges of each number column's bins, which hold about as many training rows each, in standardized units.

    Args:
        matrix: The training matrix, float32 [rows, columns].
        statistics: The matrix's statistics.
        bins: The most bins of one column; ties leave fewer, and a column with one value has none.
    """
    shares = np.linspace(0, 1, bins + 1)
    columns = [ordered(matrix[:, place]) for place in statistics.numbers]
    edges = [values[np.floor((len(values) - 1) * shares).astype(np.int64)].astype(np.float64) for values in columns]
    rows = zip(edges, statistics.mean, statistics.std, strict=True)
    # Unique after the cast: edges that differ only in float64 would make a bin without width.
    return [np.unique(((values - mean) / std).astype(np.float32)) for values, mean, std in rows]


def standardized(values: np.ndarray, classes: int) -> np.ndarray:
    """Return a target's columns, a column for each class, with the mean 0 and the total variance 1: float64 [rows, columns].

    Args:
        values: Class numbers, or quantities.
        classes: Number of classes; 0 for a quantity.
    """
    columns = np.eye(classes)[values.astype(np.int64)] if classes else values.astype(np.float64)[:, None]
    centred = columns - columns.mean(0)
    return np.asarray(centred / max(math.sqrt(centred.var(0).sum()), TINY))


@dataclass(frozen=True)
class Evidence:
    """The training rows that test whether each of a column's numbers has a separate effect.

    Attributes:
        rows: The rows' places in the training matrix.
        targets: The rows' targets, from `standardized`, float64 [rows, outputs].
        folds: Places among them to learn effects from, and places to test these on, divided as the project's splits are.
    """

    rows: np.ndarray
    targets: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]


def fit_codes(matrix: np.ndarray, statistics: Statistics, evidence: Evidence) -> list[np.ndarray]:
    """Return the whole numbers of each number column that have a separate effect, sorted; none of a quantity.

    Args:
        matrix: The training matrix, float32 [rows, columns].
        statistics: The matrix's statistics.
        evidence: The rows that test whether a column's numbers have effects.
    """
    return [_codes(matrix[:, place].astype(np.float64), evidence) for place in statistics.numbers]


def _codes(column: np.ndarray, evidence: Evidence) -> np.ndarray:
    values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
    is_candidate = len(values) >= LEAST_CODES and counts.mean() >= CODE_ROWS and values[-1] - values[0] < WIDEST
    is_whole = is_candidate and np.abs(values).max() < EXACT and (values == np.floor(values)).all()
    if not is_whole or not _have_effects(column[evidence.rows], evidence):
        return values[:0]
    return values[counts >= LEAST_ROWS]


def _have_effects(column: np.ndarray, evidence: Evidence) -> bool:
    """Return True if numbers have effects beside their trend: rows that were held out are predicted better with them.

    The trend is linear between the edges of bins. An effect is the mean distance from it of a number's rows, shrunk.

    Args:
        column: Whole numbers, float64 [rows]; NaN for a missing one.
        evidence: The evidence of these rows.
    """
    known = ~np.isnan(column)
    if known.sum() < CODE_ROWS * LEAST_CODES:  # though the whole table has more
        return False
    edges = np.unique(np.quantile(column[known], np.linspace(0, 1, TREND_BINS + 1)))
    # A missing number counts as the least one here; no fold holds its row.
    column = np.where(known, column, edges[0])
    pieces = np.clip((column[:, None] - edges[:-1]) / np.diff(edges), 0, 1)
    trend, number = np.column_stack([np.ones(len(column)), pieces]), (column - column.min()).astype(np.int64)
    folds = [[part[known[part]] for part in fold] for fold in evidence.folds]
    gain = np.concatenate([_gain(number, trend, evidence.targets, *fold) for fold in folds])
    return bool(len(gain) and gain.mean() > max(LEAST_GAIN, SURE * gain.std() / math.sqrt(len(gain))))


def _gain(number: np.ndarray, trend: np.ndarray, targets: np.ndarray, learned: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Return the decrease of each held-out row's squared error by effects beside the trend."""
    known, wanted = trend[learned], targets[learned]
    # The normal equations: wide tables have hundreds of such columns, and lstsq of the rows takes ten times as long.
    fitted, *_ = np.linalg.lstsq(known.T @ known, known.T @ wanted, rcond=None)
    left, size = wanted - known @ fitted, number.max() + 1
    sums = np.stack([np.bincount(number[learned], one, size) for one in left.T], axis=1)
    effects = sums / (np.bincount(number[learned], minlength=size) + SHRINKAGE)[:, None]
    left = targets[held_out] - trend[held_out] @ fitted
    return np.asarray((left**2 - (left - effects[number[held_out]]) ** 2).sum(1))


class Codes(nn.Module):
    """Adds a learned vector to a number's vector, as for categories, where it is among its column's known whole numbers.

    Neighbouring years, shops or postal codes need not be alike. All begin at 0; unknown numbers share one vector, and
    fractions and missing ones share it, too. In: float32 [rows, numbers] in the table's units. Out: float32 [rows, numbers,
    size].

    Args:
        known: Sorted whole numbers of each column, from `fit_codes`; none of a column that is no code.
        size: The size of a vector.
    """

    low: Tensor
    last: Tensor
    first: Tensor
    slots: Tensor

    def __init__(self, known: list[np.ndarray], size: int) -> None:
        super().__init__()
        # Each column's vector of unknown numbers, before its known ones.
        unknown = np.cumsum([0, *(1 + len(one) for one in known)])
        slots = [_slots(one, start) for one, start in zip(known, unknown[:-1], strict=True)]
        lengths = [len(one) for one in slots]
        lows = [one[0] - 1 if len(one) else 0 for one in known]
        self.register_buffer("low", torch.tensor(lows, dtype=torch.float32))
        self.register_buffer("last", torch.tensor(lengths, dtype=torch.float32) - 1)
        self.register_buffer("first", torch.from_numpy(np.cumsum([0, *lengths[:-1]])))
        self.register_buffer("slots", torch.from_numpy(np.concatenate(slots)))
        self.weight = nn.Parameter(torch.zeros(int(unknown[-1]), size))

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors to add to those of some rows."""
        places = (whole_or(x, self.low) - self.low).clamp(min=0)
        return functional.embedding(self.slots[torch.minimum(places, self.last).long() + self.first], self.weight)


def _slots(known: np.ndarray, start: int) -> np.ndarray:
    """Return the vector of each number from below the least known one to above the largest: `start` for one that is not known."""
    if not len(known):
        return np.array([start])
    slots = np.full(int(known[-1] - known[0]) + 3, start)
    slots[(known - known[0]).astype(np.int64) + 1] = start + 1 + np.arange(len(known))
    return slots


class PiecewiseLinear(nn.Module):
    """Adds to each number's vector a function that is linear between the edges of its bins, and constant outside of them.

    It begins at 0, so that a network begins as one over plain numbers (Gorishniy et al., 2022, arXiv 2203.05556, and its
    authors' later form in arXiv 2410.24210). In: float32 [rows, numbers]. Out: float32 [rows, numbers, size].
    """

    low: Tensor
    per_width: Tensor

    def __init__(self, edges: list[np.ndarray], size: int) -> None:
        super().__init__()
        # At least one bin, as a buffer of width 0 would come about where every column has one value.
        bins = max(1, *(len(one) - 1 for one in edges))
        low, per_width = (np.zeros((len(edges), bins), dtype=np.float32) for _ in range(2))
        for row, one in enumerate(edges):
            widths = np.diff(one)
            low[row, : len(widths)], per_width[row, : len(widths)] = one[:-1], 1 / np.maximum(widths, NARROWEST)
        self.register_buffer("low", torch.from_numpy(low))
        self.register_buffer("per_width", torch.from_numpy(per_width))
        self.weight = nn.Parameter(torch.zeros(len(edges), bins, size))

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding to add to the vectors of some rows."""
        shares = ((x.unsqueeze(2) - self.low) * self.per_width).clamp(0, 1)
        return by_column(shares, self.weight)


class Periodic(nn.Module):
    """Adds to each number's vector sines and cosines of it, whose frequencies are learned (arXiv 2203.05556).

    In: float32 [rows, numbers]. Out: float32 [rows, numbers, size].
    """

    def __init__(self, numbers: int, size: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.empty(numbers, FREQUENCIES).normal_(0, FREQUENCY))
        self.weight = nn.Parameter(uniform((numbers, 2 * FREQUENCIES, size), 2 * FREQUENCIES))

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding to add to the vectors of some rows."""
        angle = 2 * math.pi * x.unsqueeze(2) * self.frequency
        return by_column(torch.cat([angle.cos(), angle.sin()], dim=2), self.weight)


def by_column(x: Tensor, weight: Tensor) -> Tensor:
    """Return [rows, columns, out] of [rows, columns, in], each column by its own matrix of weight [columns, in, out]."""
    return torch.matmul(x.transpose(0, 1), weight).transpose(0, 1)


def uniform(shape: tuple[int, ...], inputs: int) -> Tensor:
    """Return the first weights of a layer with `inputs` inputs, drawn as in PyTorch's layers."""
    bound = inputs**-0.5
    return torch.empty(shape).uniform_(-bound, bound)


class Tokens(nn.Module):
    """Turns a table's matrix into one vector for each column.

    In: float32 [rows, columns], NaN for a missing number, -1 for a missing or unseen category.
    Out: float32 [rows, columns, `size`], the number columns first. A number's vector is linear in it, to which the kind of
    embedding adds, and so do codes; where training has missing ones, a separate vector marks them. Each category has a vector;
    that of unknown ones begins at 0 and stays so where training has none.

    Args:
        config: The `model` part of a config.
        statistics: The training matrix's statistics.
        edges: The edges of its number columns' bins.
        codes: The whole numbers of each number column that have a vector; none for a model without codes.
    """

    numbers: Tensor
    median: Tensor
    mean: Tensor
    std: Tensor
    columns: Tensor
    first: Tensor

    def __init__(
        self, config: TableModel, statistics: Statistics, edges: list[np.ndarray], codes: Sequence[np.ndarray] = ()
    ) -> None:
        super().__init__()
        self.size, self.count = config.embedding, len(statistics.numbers)
        self.has_gaps, self.has_categories = bool(statistics.indicated), bool(statistics.categories)
        self.columns_out = self.count + len(statistics.categories)
        if self.count:
            self._numbers(config, statistics, edges)
        self.codes = Codes(list(codes), self.size) if any(map(len, codes)) else None
        if self.has_categories:
            self._categories(statistics)

    def _numbers(self, config: TableModel, statistics: Statistics, edges: list[np.ndarray]) -> None:
        self.register_buffer("numbers", torch.tensor(statistics.numbers, dtype=torch.int64))
        for name in ("median", "mean", "std"):
            self.register_buffer(name, torch.tensor(np.asarray(getattr(statistics, name)), dtype=torch.float32))
        shape = (self.count, self.size)
        self.weight, self.bias = (nn.Parameter(uniform(shape, self.size)) for _ in range(2))
        if self.has_gaps:
            self.gap = nn.Parameter(torch.zeros(shape))
        self.more: nn.Module | None = None
        if config.numbers == "piecewise":
            self.more = PiecewiseLinear(edges, self.size)
        elif config.numbers == "periodic":
            self.more = Periodic(*shape)

    def _categories(self, statistics: Statistics) -> None:
        sizes = [count + 1 for _, count, _ in statistics.categories]
        first = np.cumsum([0, *sizes[:-1]])
        self.register_buffer("columns", torch.tensor([place for place, _, _ in statistics.categories], dtype=torch.int64))
        self.register_buffer("first", torch.from_numpy(first))
        vectors = uniform((sum(sizes), self.size), self.size)
        vectors[torch.from_numpy(first)] = 0
        self.category = nn.Parameter(vectors)

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of some rows."""
        parts = [self._of_numbers(x.index_select(1, self.numbers))] if self.count else []
        if self.has_categories:
            parts.append(self._of_categories(x.index_select(1, self.columns)))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def _of_numbers(self, values: Tensor) -> Tensor:
        missing = values.isnan()
        standard = (torch.where(missing, self.median, values) - self.mean) / self.std
        clipped = standard * torch.rsqrt(1 + (standard / CLIP).square())
        found = torch.addcmul(self.bias, clipped.unsqueeze(2), self.weight)
        if self.more is not None:
            found = found + self.more(standard)
        if self.codes is not None:
            found = found + self.codes(values)
        return found + missing.unsqueeze(2) * self.gap if self.has_gaps else found

    def _of_categories(self, codes: Tensor) -> Tensor:
        # NaN cast to an integer is undefined, and may be outside of the embeddings; a fraction would become its neighbour.
        codes = whole_or(codes, -1.0)
        # One more, as the first vector of each column is that of unknown categories, whose code is -1.
        return functional.embedding(codes.long() + 1 + self.first, self.category)
