"""Resource inefficiency: an idle GPU (page: `diagnostics/resource_inefficiency.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics import input_starvation
from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text

ID = "resource_inefficiency"
FIGURES = ("throughput.svg", "data_wait.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Judge the GPU's utilization, beside the share of time that the loop waited for data: it tells the two causes apart."""
    gpu = run.record.get("gpu")
    starved = run.data_wait > thresholds["data_wait"] and not run.waited_s < thresholds["wait_s"]
    if isinstance(gpu, Mapping) and math.isfinite(number(gpu.get("utilization_p95"))):
        return _by_utilization(gpu, run.data_wait, starved, thresholds["gpu_percent"])
    why = "The GPU's utilization was not measured" if isinstance(gpu, Mapping) else "There is no GPU"
    reason = f"{why}, so its utilization is not applicable; waiting for data is judged by {input_starvation.ID}."
    return Finding(ID, "not_applicable", reason, {"utilization_p95": None, "data_wait": run.data_wait})


def _by_utilization(gpu: Mapping[str, Any], wait: float, starved: bool, least: float) -> Finding:
    busy = number(gpu.get("utilization_p95"))
    fired = busy < least
    advice = _advice(wait, starved) if fired else ""
    reason = (
        f"The GPU ({gpu.get('name')}) was busy for {text(busy)} % (95th percentile; at least {text(least)} % expected){advice}."
    )
    evidence = {"utilization_p95": busy, "samples": gpu.get("samples"), "data_wait": wait}
    return judged(ID, fired, reason, evidence, FIGURES)


def _advice(wait: float, starved: bool) -> str:
    """Tell a slow input from steps that are too small."""
    if math.isnan(wait):
        return ""
    waited = f"and the loop waited for data for {percent(wait)} of the time"
    return f", {waited}: the input is the bottleneck" if starved else f", {waited}: the steps are too small"
