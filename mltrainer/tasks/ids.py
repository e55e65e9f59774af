"""The ids of a split's samples: an array, or for very many samples what computes those that are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

HELD = 2**20  # ids that are held as an array; of more, only those that are asked for are made
HASHED = 2**24  # ids whose digest is that of all their bytes; more take seconds each time a run begins


class ComputedIds(ABC):
    """Ids by position, as an array's are, of which none is held."""

    @abstractmethod
    def __len__(self) -> int:
        """Return their number."""

    @abstractmethod
    def at(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids at some positions, int64."""

    @property
    @abstractmethod
    def description(self) -> list[Any]:
        """What decides them all, as plain data."""

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
        start: The first.
        stop: The one after the last.
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
        """First and last."""
        return [self._start, self._stop]


Ids = np.ndarray | ComputedIds


def consecutive(start: int, stop: int) -> Ids:
    """Return consecutive ids, as an array where they are not too many."""
    return np.arange(start, stop) if stop - start <= HELD else IdRange(start, stop)
