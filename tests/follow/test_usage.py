"""What a run's process uses: of this machine's, where its lock says so; GPUs by NVML where that is there."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator

import pytest

from mltrainer.follow.usage import Gpu, Usage, _handles, gpus, holder
from mltrainer.workspace import locked


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    _handles.cache_clear()
    yield
    _handles.cache_clear()


def test_the_process_that_holds_the_lock_is_told_with_its_memory(tmp_path):
    with locked(tmp_path / "lock", "the run"):
        usage = Usage(tmp_path / "lock", "cpu")
        found = usage.sample()
        assert holder(tmp_path / "lock") == os.getpid()
        assert 10 < found.memory_mb < 100_000
        assert found.gpus == []
        assert usage.sample() is None  # it is not yet time


def test_nothing_is_told_of_a_process_elsewhere_or_of_none(tmp_path):
    assert Usage(tmp_path / "lock", "cpu").sample() is None
    (tmp_path / "lock").write_text("process 1 on another-machine (mltrainer)")
    assert Usage(tmp_path / "lock", "cpu").sample() is None


def test_gpus_are_told_where_the_run_trains_on_one(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpus() == []
    fake = types.ModuleType("pynvml")
    fake.nvmlInit, fake.nvmlDeviceGetCount = lambda: None, lambda: 1  # type: ignore[attr-defined]
    fake.nvmlDeviceGetHandleByIndex = lambda nr: nr  # type: ignore[attr-defined]
    fake.nvmlDeviceGetUtilizationRates = lambda nr: types.SimpleNamespace(gpu=87)  # type: ignore[attr-defined]
    fake.nvmlDeviceGetMemoryInfo = lambda nr: types.SimpleNamespace(used=3 << 30)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with locked(tmp_path / "lock", "the run"):
        found = Usage(tmp_path / "lock", "cuda").sample()
    assert found.gpus == [Gpu(percent=87, memory_mb=3072)]
