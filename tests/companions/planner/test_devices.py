"""Devices of the page: their figures, what is blank, and a page that is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.companions.planner import devices, timing
from mltrainer.configs.pages import DEVICES, Device, devices_page
from mltrainer.errors import InputError
from mltrainer.records.planner import TracedBatch

NOTHING = {"step_bytes": 0, "update_bytes": 0, "moved_bytes": 0, "operations": 0, "update_moved_bytes": 0, "update_operations": 0}
ROW = TracedBatch(batch=1, flops=10**12, **NOTHING)
FIGURE = {"value": 10, "source": "a data sheet", "read": "2026-01-02"}


def write_page(project: Path, front: str) -> None:
    (project / DEVICES).parent.mkdir(parents=True)
    (project / DEVICES).write_text(f"---\n{front}\n---\n\n# Ours\n")


def test_every_shipped_figure_has_a_source_and_a_date():
    for device in devices_page(None).devices:
        for figure in (device.memory_gib, device.bandwidth_gb_s, *device.tflops.values()):
            assert figure.value is None or (figure.source and figure.read), device.name


def test_an_unknown_device_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'NVIDIA H100 SXM'"):
        devices.device("nvidia h100 sxm5", None)


def test_a_teams_page_takes_the_place_of_the_shipped_one(tmp_path):
    write_page(tmp_path, "title: Ours\ndevices: [{name: our card, memory_gib: {value: 10, source: us, read: '2026-01-02'}}]")
    assert devices.memory_bytes(devices.device("our card", tmp_path)) == 10 * 2**30
    with pytest.raises(InputError, match="there is only our card"):
        devices.device("NVIDIA T4", tmp_path)


@pytest.mark.parametrize(
    ("front", "told"),
    [
        ("title: Ours\ndevices: [{name: a, memory_gib: {value: 10}}]", "10 has no source or no date"),
        ("title: Ours\ndevices: [{name: a, memory_gib: {value: 10, source: x}}]", "10 has no source or no date"),
        ("title: Ours\ndevices: [{name: a, memory_gib: {value: -1, source: x, read: '2026-01-02'}}]", "memory_gib.value"),
        ("title: Ours\ndevices: [{name: a}, {name: a}]", "is listed twice"),
        ("title: Ours\ndevices: [{name: a, memory: 3}]", "unknown key 'memory'"),
        ("title: Ours\ndevices: [", "devices.md:"),
    ],
)
def test_a_damaged_page_is_refused_with_its_fault(tmp_path, front, told):
    write_page(tmp_path, front)
    with pytest.raises(InputError) as refused:
        devices_page(tmp_path)
    assert told in str(refused.value)
    assert DEVICES in str(refused.value)


def test_a_blank_figure_is_named_and_gives_no_time():
    blank = Device.model_validate({"name": "a", "tflops": {"fp32": {}}})
    assert devices.memory_bytes(blank) is None
    assert devices.blanks(blank) == ["memory", "bandwidth", "peak rate of fp32"]
    assert "no peak rate for fp32" in str(timing.on_device(ROW, blank, "fp32"))


def test_a_time_is_the_peak_rate_times_a_utilization_that_was_measured_and_else_none():
    known = {"name": "a", "tflops": {"fp32": FIGURE}}
    assert "utilization was not measured" in str(timing.on_device(ROW, Device.model_validate(known), "fp32"))
    used = {"low": 0.25, "high": 0.5, "source": "us", "read": "2026-01-02"}
    span = timing.on_device(ROW, Device.model_validate({**known, "utilization": used}), "fp32")
    assert span == timing.Interval(low=2e5, high=4e5)  # in microseconds: 1e12 operations at a half and a quarter of 1e13 a second
