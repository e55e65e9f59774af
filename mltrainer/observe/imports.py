"""A call as soon as a module has been imported whole; before that the module is incomplete.

Also loaded by its path into a program: it imports the standard library alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


def after_import(names: Iterable[str], then: Then) -> None:
    """Call a function with each module of some names: now if it has been imported, else after its import.

    Args:
        names: The modules.
        then: Is given the module.
    """
    waiting = []
    for name in names:
        module = sys.modules.get(name)
        # In the table, but still being imported: of a module in a circle of imports only the beginning is there.
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            waiting.append(name)
        else:
            then(module)
    if waiting:
        sys.meta_path.insert(0, _AfterImport(set(waiting), then))


class _AfterImport:
    """Finds modules as the other finders do, and calls back once one has been imported whole: many look for it before that."""

    def __init__(self, names: set[str], then: Then) -> None:
        self._names, self._then = names, then

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name not in self._names:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]  # another one that waits for the same module may be among them
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in specs if each is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._imported)  # type: ignore[assignment]  # it has what the import system calls
        return spec

    def _imported(self, module: ModuleType) -> None:
        self._names.discard(module.__name__)
        self._then(module)


class _Loader:
    def __init__(self, real: Any, then: Then) -> None:
        self._real, self._then = real, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: Any) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        # Before the module runs: its own code may ask its loader for files beside it.
        module.__loader__ = module.__spec__.loader = self._real
        self._real.exec_module(module)
        self._then(module)
