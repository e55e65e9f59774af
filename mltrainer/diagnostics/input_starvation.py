"""Input starvation: a loop that waits for its data (page: `diagnostics/input_starvation.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text
from mltrainer.records.baseline import Waiting
from mltrainer.workspace import plain

ID = "input_starvation"
FIGURES = ("data_wait.svg", "throughput.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the loop waited for data for a large share of the time, and long enough to be worth fixing."""
    share, limit, least_s = run.data_wait, thresholds["data_wait"], thresholds["wait_s"]
    starved = is_starved(run, limit, least_s)
    if math.isnan(share):
        return Finding(ID, "not_applicable", "The run recorded no time of waiting for data.")
    evidence: dict[str, Any] = {"data_wait": share, "waited_s": run.waited_s}
    reason = f"The loop waited for data for {percent(share)} of the time (at most {percent(limit)} allowed)"
    if starved:
        evidence["since_step"] = next(row.step for row in run.history if number(row.data_wait) > limit)
    elif share > limit:
        reason += f"; in all only {text(run.waited_s)} s (less than {text(least_s)} s is not judged)"
    return judged(ID, starved, f"{reason}.", evidence, FIGURES)


def is_starved(run: Run, limit: float, least_s: float) -> bool:
    """Return True if a run's loop waited for more of the time than is allowed, and in all long enough to be worth fixing."""
    return run.data_wait > limit and not run.waited_s < least_s


def waiting(run: Run, thresholds: Mapping[str, float]) -> Waiting:
    """Return the share of time in which a run's loop waited for data, with the verdict on it."""
    limit = thresholds["data_wait"]
    return Waiting(share=plain(run.data_wait), limit=limit, starved=is_starved(run, limit, thresholds["wait_s"]))
