"""Resource inefficiency: an idle GPU, or a loop that waits for data (page: `diagnostics/resource_inefficiency.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, judged, median, number, percent, text

ID = "resource_inefficiency"
FIGURES = ("throughput.svg", "data_wait.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Judge the GPU's utilization where it was measured, else - as a stand-in - the share of time spent waiting for data."""
    gpu = run.record.get("gpu")
    wait = _wait(run)
    if isinstance(gpu, Mapping) and math.isfinite(number(gpu.get("utilization_p95"))):
        return _by_utilization(gpu, wait, thresholds)
    why = "There is no GPU, so its utilization is not applicable"
    if isinstance(gpu, Mapping):
        why = "The GPU's utilization was not measured"
    if math.isnan(wait):
        reason = f"{why}, and the run recorded no time of waiting for data."
        return Finding(ID, "not_applicable", reason, {"rule": None, "utilization_p95": None, "data_wait": None})
    return _by_wait(run, why, wait, thresholds)


def starvation(run: Run, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Return how long a run's loop waited for data.

    Returns:
        `share` of the time, NaN where it was not recorded; `limit`, the largest that is allowed; and `starved`, whether it was
        more, and in all long enough to be worth mending.
    """
    share, limit = _wait(run), thresholds["data_wait"]
    return {"share": share, "limit": limit, "starved": share > limit and not _waited_s(run) < thresholds["wait_s"]}


def _wait(run: Run) -> float:
    """Return the usual share of time spent waiting for data; the first interval starts workers and does not count."""
    shares = run.series("data_wait")
    return median(shares[1:] or shares)


def _by_utilization(gpu: Mapping[str, Any], wait: float, thresholds: Mapping[str, float]) -> Finding:
    busy, least = number(gpu.get("utilization_p95")), thresholds["gpu_percent"]
    fired = busy < least
    advice = _advice(wait, thresholds["data_wait"]) if fired else ""
    reason = (
        f"The GPU ({gpu.get('name')}) was busy for {text(busy)} % (95th percentile; at least {text(least)} % expected){advice}."
    )
    evidence = {"rule": "gpu_percent", "utilization_p95": busy, "samples": gpu.get("samples"), "data_wait": wait}
    return judged(ID, fired, reason, evidence, FIGURES)


def _advice(wait: float, limit: float) -> str:
    """Tell a slow input from steps that are too small."""
    if math.isnan(wait):
        return ""
    waited = f"and the loop waited for data for {percent(wait)} of the time"
    return f", {waited}: the input is the bottleneck" if wait > limit else f", {waited}: the steps are too small"


def _by_wait(run: Run, why: str, wait: float, thresholds: Mapping[str, float]) -> Finding:
    limit, least_s, waited_s = thresholds["data_wait"], thresholds["wait_s"], _waited_s(run)
    fired = starvation(run, thresholds)["starved"]
    reason = f"{why}; as a stand-in: the loop waited for data for {percent(wait)} of the time (at most {percent(limit)} allowed)"
    if wait > limit and not fired:
        reason += f"; in all only {text(waited_s)} s (less than {text(least_s)} s is not judged)"
    evidence = {"rule": "data_wait", "data_wait": wait, "waited_s": waited_s, "utilization_p95": None}
    return judged(ID, fired, reason + ".", evidence, FIGURES)


def _waited_s(run: Run) -> float:
    """Return the seconds spent waiting in the whole run, NaN if durations were not recorded."""
    return sum(share * seconds for share, seconds in zip(run.series("data_wait"), run.series("seconds"), strict=True))
