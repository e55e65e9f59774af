"""The ids of a split's samples: an array, or for very many samples an object that computes the requested ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

HELD = 2**20  # ids that are held as an array; of more, only the requested ones are computed
HASHED = 2**24  # ids whose digest covers all their bytes; more would take seconds at each start of a run


class ComputedIds(ABC):
    """Ids by position, as in an array, computed on request."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of ids."""

    @abstractmethod
    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids at some positions, int64."""

    @property
    @abstractmethod
    def description(self) -> list[Any]:
        """The parameters that decide all ids, as plain data."""

    def __getitem__(self, index: int | slice | np.ndarray) -> Any:
        if isinstance(index, slice):
            return self.at(np.arange(*index.indices(len(self))))
        if isinstance(index, np.ndarray):
            return self.at(index)
        return int(self.at(np.array([range(len(self))[index]]))[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.at(np.arange(len(self))).astype(dtype or np.int64)


class IdRange(ComputedIds):
    """Consecutive ids.

    Args:
        start: The first id.
        stop: The id after the last.
    """

    def __init__(self, start: int, stop: int) -> None:
        self._start, self._stop = start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids at some positions."""
        return positions.astype(np.int64) + self._start

    @property
    def description(self) -> list[Any]:
        """The first id and the one after the last."""
        return [self._start, self._stop]


Ids = np.ndarray | ComputedIds


def consecutive(start: int, stop: int) -> Ids:
    """Return consecutive ids, as an array where they are not too many."""
    return np.arange(start, stop) if stop - start <= HELD else IdRange(start, stop)
