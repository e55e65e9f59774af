from __future__ import annotations

import pytest

from mltrainer.diagnostics.resource_inefficiency import find
from mltrainer.diagnostics.signals import Run

LIMITS = {"gpu_percent": 70, "data_wait": 0.3, "wait_s": 0.5}


def waiting(run, share, seconds=10.0):
    for one in run["history"]:
        one["data_wait"], one["seconds"] = share, seconds
    return Run(run)


@pytest.mark.parametrize(("busy", "expected"), [(40, "fired"), (69.9, "fired"), (70, "clear"), (98, "clear")])
def test_a_gpu_is_judged_by_its_utilization(healthy, busy, expected):
    healthy["gpu"] = {"name": "A", "utilization_p95": busy, "samples": 200}
    finding = find(Run(healthy), LIMITS)
    assert (finding.state, finding.evidence["rule"]) == (expected, "gpu_percent")


@pytest.mark.parametrize(("share", "advice"), [(0.8, "the input is the bottleneck"), (0.01, "the steps are too small")])
def test_an_idle_gpu_is_explained_by_the_time_spent_waiting(healthy, share, advice):
    healthy["gpu"] = {"name": "A", "utilization_p95": 20, "samples": 200}
    assert advice in find(waiting(healthy, share), LIMITS).reason


@pytest.mark.parametrize(("share", "expected"), [(0.9, "fired"), (0.31, "fired"), (0.29, "clear")])
def test_without_a_gpu_waiting_stands_in_and_the_reason_says_so(healthy, share, expected):
    finding = find(waiting(healthy, share), LIMITS)
    assert (finding.state, finding.evidence["rule"]) == (expected, "data_wait")
    assert finding.reason.startswith("There is no GPU, so its utilization is not applicable; as a stand-in")


def test_a_gpu_that_was_not_measured_is_never_zero_percent(healthy):
    healthy["gpu"] = {"name": "A", "utilization_p95": None, "samples": 0}
    finding = find(Run(healthy), LIMITS)
    assert finding.state == "clear"
    assert finding.reason.startswith("The GPU's utilization was not measured")


def test_a_wait_of_a_moment_in_all_is_not_judged(healthy):
    finding = find(waiting(healthy, 0.9, seconds=0.01), LIMITS)
    assert finding.state == "clear"
    assert "in all only 0.18 s" in finding.reason


def test_starting_the_workers_does_not_count(healthy):
    healthy["history"][0]["data_wait"] = 1.0
    healthy["history"] = healthy["history"][:2]
    assert find(Run(healthy), LIMITS).state == "clear"


def test_nothing_measured_is_not_applicable(healthy):
    for one in healthy["history"]:
        del one["data_wait"]
    finding = find(Run(healthy), LIMITS)
    assert (finding.state, finding.evidence["rule"]) == ("not_applicable", None)
