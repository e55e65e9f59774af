"""How busy a GPU is: of the one that the training thread uses, whatever number NVML counts it by."""

from __future__ import annotations

import sys
import threading
import types

import pytest
import torch

from mltrainer.records.run import Gpu
from mltrainer.trainers.native import observers
from mltrainer.trainers.native.observers import GpuWatch
from tests.waiting import until

UUIDS = {0: "ab12cd34-0000-1111-2222-333344445555", 1: "ef56ab78-0000-1111-2222-333344445555"}  # as torch tells them
LOADS = {f"GPU-{UUIDS[0]}": 11, f"GPU-{UUIDS[1]}": 87}  # as NVML knows them


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, of which this thread uses the second, as a process of several does."""
    current = threading.local()
    current.device = 1

    def properties() -> types.SimpleNamespace:
        device = getattr(current, "device", 0)
        return types.SimpleNamespace(name=f"GPU {device}", uuid=UUIDS[device])

    fake = types.ModuleType("pynvml")
    fake.nvmlInit = lambda: None  # type: ignore[attr-defined]
    fake.nvmlDeviceGetHandleByUUID = lambda uuid: LOADS[uuid]  # type: ignore[attr-defined]
    fake.nvmlDeviceGetHandleByIndex = lambda nr: [*LOADS.values()][nr]  # type: ignore[attr-defined]
    fake.nvmlDeviceGetUtilizationRates = lambda load: types.SimpleNamespace(gpu=load)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: properties().name)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: getattr(current, "device", 0))
    monkeypatch.setattr(observers, "SAMPLE_S", 0.001)


@pytest.mark.usefixtures("second_of_two")
def test_the_gpu_of_the_training_is_watched():
    with GpuWatch("cuda", lambda: True) as watch:
        until(lambda: len(watch._samples) > observers.WARM_UP_SAMPLES)
    found = watch.summary()
    assert found == Gpu(name="GPU 1", utilization=87, samples=len(watch._samples) - observers.WARM_UP_SAMPLES)


@pytest.mark.usefixtures("second_of_two")
def test_only_what_is_seen_while_steps_run_counts_and_its_median_is_told():
    busy, loads = iter([True] * 4 + [False] * 5 + [True] * 5), iter([0] * 4 + [90, 10, 20, 80, 30])
    sys.modules["pynvml"].nvmlDeviceGetUtilizationRates = lambda _: types.SimpleNamespace(gpu=next(loads))  # type: ignore[attr-defined]
    with GpuWatch("cuda", lambda: next(busy, False)) as watch:
        until(lambda: len(watch._samples) >= observers.WARM_UP_SAMPLES + 5)
    assert watch.summary() == Gpu(name="GPU 1", utilization=30, samples=5)


@pytest.mark.usefixtures("second_of_two")
def test_without_nvml_the_gpu_is_named_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with GpuWatch("cuda", lambda: True) as watch:
        pass
    assert watch.summary() == Gpu(name="GPU 1", utilization=None, samples=0)


def test_without_a_gpu_nothing_is_watched():
    with GpuWatch("cpu", lambda: True) as watch:
        pass
    assert watch.summary() is None
