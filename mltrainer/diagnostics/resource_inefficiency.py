"""Resource inefficiency: an idle GPU (page: `diagnostics/resource_inefficiency.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics import input_starvation
from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text
from mltrainer.records.run import Gpu

FIGURES = ("throughput.svg", "data_wait.svg")


def find(run: Run, *, gpu_percent: float, data_wait: float, wait_s: float) -> Finding:
    """Judge the GPU's utilization, beside the share of time that the loop waited for data: it distinguishes the two causes."""
    gpu, starved = run.result.gpu, input_starvation.is_starved(run, data_wait, wait_s)
    if gpu is not None and math.isfinite(number(gpu.utilization)):
        return _by_utilization(gpu, run.data_wait, starved, gpu_percent)
    # Never 0 %: a machine without a GPU has no idle one.
    why = "There is no GPU" if gpu is None else "The GPU's utilization was not measured"
    reason = f"{why}, so its utilization is not applicable; waiting for data is judged by input_starvation."
    return Finding("not_applicable", reason, {"utilization": None, "data_wait": run.data_wait})


def _by_utilization(gpu: Gpu, wait: float, starved: bool, least: float) -> Finding:
    busy = number(gpu.utilization)
    fired = busy < least
    advice = _advice(wait, starved) if fired else ""
    expected = f"the median while steps run; at least {text(least)} % expected"
    reason = f"The GPU ({gpu.name}) was busy for {text(busy)} % ({expected}){advice}."
    evidence = {"utilization": busy, "samples": gpu.samples, "data_wait": wait}
    return judged(fired, reason, evidence, FIGURES)


def _advice(wait: float, starved: bool) -> str:
    """Distinguish a slow input from too small steps."""
    if math.isnan(wait):
        return ""
    waited = f"and the loop waited for data for {percent(wait)} of the time"
    return f", {waited}: the input is the bottleneck" if starved else f", {waited}: the steps are too small"
