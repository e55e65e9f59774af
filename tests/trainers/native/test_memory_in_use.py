"""What a process holds and what of it is in use."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from mltrainer.trainers.native.signals import memory
from mltrainer.trainers.native.signals.memory import allocated_mb, memory_mb


def test_what_is_in_use_grows_and_falls_with_a_tensor():
    before = allocated_mb()
    assert before is not None
    kept = torch.zeros(8 * 2**20)
    held = allocated_mb()
    assert held is not None
    assert held - before == pytest.approx(32, abs=1)
    del kept
    assert allocated_mb() == pytest.approx(before, abs=1)
    assert memory_mb() > 10


def test_a_c_library_that_does_not_tell_is_none(monkeypatch):
    def without(name: Any) -> object:
        return object()

    memory._mallinfo.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", without)
    assert allocated_mb() is None
    memory._mallinfo.cache_clear()
