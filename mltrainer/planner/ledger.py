"""The tensors that live while a block runs, counted by their storages; on fake tensors nothing is allocated."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Ledger(TorchDispatchMode):
    """Counts the bytes of storages that are made while it is entered, until nothing holds them; what is a view counts once.

    Attributes:
        live: Bytes that live now.
        peak: The most since `reset`.
        moved: Bytes that operations read and wrote since `reset`.
        operations: Their number.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types for its modes
        self.live = self.peak = self.moved = self.operations = 0
        self._sizes: dict[int, int] = {}

    def reset(self) -> None:
        """Begin to count anew from what lives."""
        self.peak, self.moved, self.operations = self.live, 0, 0

    def note(self, tensors: Iterator[Tensor]) -> None:
        """Count tensors that were made elsewhere."""
        for tensor in tensors:
            self._note(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation, and count what it makes."""
        found = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
        if not func.is_view:
            self.operations += 1
            read = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
            self.moved += sum(tensor.numel() * tensor.element_size() for tensor in (*read, *made))
        self.note(iter(made))
        return found

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if self._sizes.get(key) == size:
            return
        if key not in self._sizes:
            weakref.finalize(storage, self._gone, key)
        self.live += size - self._sizes.get(key, 0)  # one that was resized counts with its new size
        self._sizes[key] = size
        self.peak = max(self.peak, self.live)

    def _gone(self, key: int) -> None:
        self.live -= self._sizes.pop(key)
