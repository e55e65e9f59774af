"""What is done as soon as a module has been imported."""

from __future__ import annotations

import importlib
import sys

from mltrainer.observe.imports import after_import


def test_two_that_wait_for_one_module_are_both_called_once(tmp_path, monkeypatch):
    (tmp_path / "waited_for.py").write_text("value = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    called: list[tuple[str, int]] = []
    for who in ("first", "second", "third"):
        after_import(["waited_for"], lambda module, who=who: called.append((who, module.value)))  # type: ignore[misc]
    importlib.import_module("waited_for")
    importlib.import_module("waited_for")
    assert sorted(called) == [("first", 1), ("second", 1), ("third", 1)]
    del sys.modules["waited_for"]
