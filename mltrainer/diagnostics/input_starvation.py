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
    share, limit, starved = run.data_wait, thresholds["data_wait"], is_starved(run, thresholds)
    if math.isnan(share):
        return Finding(ID, "not_applicable", "The run recorded no time of waiting for data.")
    evidence: dict[str, Any] = {"data_wait": share, "waited_s": run.waited_s}
    reason = f"The loop waited for data for {percent(share)} of the time (at most {percent(limit)} allowed)"
    if starved:
        evidence["since_step"] = next(row.step for row in run.history if number(row.data_wait) > limit)
    elif share > limit:
        reason += f"; in all only {text(run.waited_s)} s (less than {text(thresholds['wait_s'])} s is not judged)"
    return judged(ID, starved, f"{reason}.", evidence, FIGURES)


def is_starved(run: Run, thresholds: Mapping[str, float]) -> bool:
    """Return True if a run's loop waited for more of the time than is allowed, and in all long enough to be worth fixing."""
    return run.data_wait > thresholds["data_wait"] and not run.waited_s < thresholds["wait_s"]


def waiting(run: Run, thresholds: Mapping[str, float]) -> Waiting:
    """Return the share of time in which a run's loop waited for data, with the verdict on it."""
    return Waiting(share=plain(run.data_wait), limit=thresholds["data_wait"], starved=is_starved(run, thresholds))
