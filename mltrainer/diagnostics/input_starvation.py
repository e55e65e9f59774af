"""Input starvation: a loop that waits for its data (page: `diagnostics/input_starvation.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent, text

ID = "input_starvation"
FIGURES = ("data_wait.svg", "throughput.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the loop waited for data for a large share of the time, and long enough to be worth fixing."""
    found = starvation(run, thresholds)
    share, limit = found["share"], found["limit"]
    if math.isnan(share):
        return Finding(ID, "not_applicable", "The run recorded no time of waiting for data.")
    evidence: dict[str, Any] = {"data_wait": share, "waited_s": run.waited_s}
    reason = f"The loop waited for data for {percent(share)} of the time (at most {percent(limit)} allowed)"
    if found["starved"]:
        evidence["since_step"] = next(row.get("step") for row in run.history if number(row.get("data_wait")) > limit)
    elif share > limit:
        reason += f"; in all only {text(run.waited_s)} s (less than {text(thresholds['wait_s'])} s is not judged)"
    return judged(ID, found["starved"], f"{reason}.", evidence, FIGURES)


def starvation(run: Run, thresholds: Mapping[str, float]) -> dict[str, Any]:
    """Return the share of time in which a run's loop waited for data, with the verdict on it.

    Returns:
        `share` of the time, NaN where it was not recorded; `limit`, the largest that is allowed; and `starved`, whether it was
        more, and in all long enough to be worth fixing.
    """
    limit, least_s = thresholds["data_wait"], thresholds["wait_s"]
    return {"share": run.data_wait, "limit": limit, "starved": run.data_wait > limit and not run.waited_s < least_s}
