"""A cache of the values that were used last, up to a total size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The values that were used last; a copy for another process has none of them.

    Args:
        most: The largest total size; a single value may be larger.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[K, tuple[V, int]] = {}

    def __reduce__(self) -> tuple[type[LruCache[K, V]], tuple[int]]:
        return type(self), (self._most,)

    def get(self, key: K, make: Callable[[], V], size: int = 1) -> V:
        """Return the value of a key, held or made now; older values are dropped first to make room."""
        # Taken out and put back: the first in the dict is then the least recently used one.
        found = self._values.pop(key, None)
        if found is None:
            self._make_room(size)
            found = make(), size
        self._values[key] = found
        return found[0]

    def _make_room(self, size: int) -> None:
        while self._values and sum(one for _, one in self._values.values()) + size > self._most:
            del self._values[next(iter(self._values))]

    def clear(self) -> None:
        """Drop all values."""
        self._values.clear()
