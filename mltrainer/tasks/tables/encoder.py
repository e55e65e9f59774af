"""From a table's matrix to features, and from a prediction to the target's units: parts of the model, which travel with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

NEVER = -2.0  # a code that no cell has: the slot of unknown values that training has not seen stays 0


@dataclass(frozen=True)
class Statistics:
    """The statistics fitted on the training split's matrix; one entry per number column unless noted.

    Attributes:
        numbers: Places of the number columns in the matrix.
        median: The medians, which replace missing numbers.
        mean: The means after that replacement.
        std: The standard deviations after it; 1 for a constant column.
        indicated: Places, among the number columns, of those with missing values.
        categories: Place in the matrix, number of categories, and whether training has missing ones, per category column.
    """

    numbers: list[int]
    median: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    indicated: list[int]
    categories: list[tuple[int, int, bool]]


def fit_statistics(matrix: np.ndarray, categories: dict[int, int]) -> Statistics:
    """Return the statistics of a training matrix, computed in float64.

    Args:
        matrix: The training matrix, float32 [rows, columns], from `schema.encode`.
        categories: Place of each category column to its number of categories.
    """
    numbers = [place for place in range(matrix.shape[1]) if place not in categories]
    values = matrix[:, numbers].astype(np.float64)
    missing = np.isnan(values)
    median = np.array([_median(ordered(matrix[:, place])) for place in numbers])
    filled = np.where(missing, median, values) if missing.any() else values
    std = filled.std(axis=0)
    slots = [(place, count, bool((matrix[:, place] < 0).any())) for place, count in categories.items()]
    return Statistics(
        numbers, median, filled.mean(axis=0), np.where(std > 0, std, 1.0), np.flatnonzero(missing.any(axis=0)).tolist(), slots
    )


def ordered(column: np.ndarray) -> np.ndarray:
    """Return a column's numbers, sorted; a 0 for a column without any."""
    values: np.ndarray = np.sort(column[~np.isnan(column)])
    return values if len(values) else np.zeros(1)


def _median(values: np.ndarray) -> float:
    """Return the median of sorted values, in float64."""
    return float(values[[(len(values) - 1) // 2, len(values) // 2]].astype(np.float64).mean())


def whole_or(x: Tensor, other: Tensor | float) -> Tensor:
    """Return the whole numbers of a tensor, and another number in place of fractions and missing ones."""
    return torch.where(x == x.floor(), x, other)


class TabularEncoder(nn.Module):
    """Turns a table's matrix into features: numbers imputed and standardized, categories one-hot.

    In: float32 [rows, columns], NaN for a missing number, -1 for a missing or unseen category.
    Out: float32 [rows, `features`]: the numbers, a 0/1 indicator for each number column that training has missing
    values in, and for each category column a slot per category and one for unknown.
    """

    numbers: Tensor
    median: Tensor
    mean: Tensor
    std: Tensor
    indicated: Tensor
    slot_columns: Tensor
    slot_codes: Tensor

    def __init__(self, statistics: Statistics) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.tensor(statistics.numbers, dtype=torch.int64))
        for name in ("median", "mean", "std"):
            self.register_buffer(name, torch.tensor(np.asarray(getattr(statistics, name)), dtype=torch.float32))
        self.register_buffer("indicated", torch.tensor(statistics.indicated, dtype=torch.int64))
        slots = [
            (place, code) for place, count, seen in statistics.categories for code in [-1.0 if seen else NEVER, *range(count)]
        ]
        self.register_buffer("slot_columns", torch.tensor([place for place, _ in slots], dtype=torch.int64))
        self.register_buffer("slot_codes", torch.tensor([code for _, code in slots], dtype=torch.float32))
        self.features = len(statistics.numbers) + len(statistics.indicated) + len(slots)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of some rows."""
        parts = []
        if len(self.numbers):
            parts.extend(self._numbers(x.index_select(1, self.numbers)))
        if len(self.slot_columns):
            codes = x.index_select(1, self.slot_columns)
            # NaN and fractions equal no code: they would leave even the slot for unknown categories 0.
            codes = whole_or(codes, -1.0)
            parts.append(torch.eq(codes, self.slot_codes).to(x.dtype))
        return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0]

    def _numbers(self, values: Tensor) -> list[Tensor]:
        missing = values.isnan()
        standard = (torch.where(missing, self.median, values) - self.mean) / self.std
        if not len(self.indicated):
            return [standard]
        return [standard, missing.index_select(1, self.indicated).to(values.dtype)]


class Destandardize(nn.Module):
    """Turns standardized predictions [rows, 1] into the target's units [rows]; those of members, too."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        # one element, not none: a tensor without axes would not lift bfloat16 to float32
        self.register_buffer("mean", torch.tensor([mean], dtype=torch.float32))
        self.register_buffer("std", torch.tensor([std], dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction in the target's units."""
        return x.squeeze(-1) * self.std + self.mean


class DestandardizeEach(nn.Module):
    """Turns the outputs of several targets [..., units] into the targets' units; logits have mean 0 and deviation 1 here."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs in the targets' units."""
        return x * self.std + self.mean
