from __future__ import annotations

import pytest

from mltrainer.diagnostics.resource_inefficiency import find
from mltrainer.diagnostics.signals import Run

LIMITS = {"gpu_percent": 70, "data_wait": 0.3, "wait_s": 0.5}


def waiting(run, share, seconds=10.0):
    for one in run["history"]:
        one["data_wait"], one["seconds"] = share, seconds
    return Run.of(run)


@pytest.mark.parametrize(("busy", "expected"), [(40, "fired"), (69.9, "fired"), (70, "clear"), (98, "clear")])
def test_a_gpu_is_judged_by_its_utilization(healthy, busy, expected):
    healthy["gpu"] = {"name": "A", "utilization": busy, "samples": 200}
    assert find(Run.of(healthy), **LIMITS).state == expected


@pytest.mark.parametrize(("share", "advice"), [(0.8, "the input is the bottleneck"), (0.01, "the steps are too small")])
def test_an_idle_gpu_is_explained_by_the_time_spent_waiting(healthy, share, advice):
    healthy["gpu"] = {"name": "A", "utilization": 20, "samples": 200}
    assert advice in find(waiting(healthy, share), **LIMITS).reason


@pytest.mark.parametrize(("gpu", "why"), [(None, "There is no GPU"), ({"utilization": None}, "The GPU's utilization was not")])
def test_a_gpu_that_was_not_measured_is_never_zero_percent(healthy, gpu, why):
    finding = find(waiting({**healthy, "gpu": gpu}, 0.9), **LIMITS)
    assert finding.state == "not_applicable"
    assert finding.reason.startswith(why)
