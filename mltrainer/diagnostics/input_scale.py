"""Input scale: inputs so large or so small that usual weights and rates do not suit (page: `diagnostics/input_scale.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mltrainer.diagnostics.signals import Finding, Run, judged, number, text

ID = "input_scale"
NORMALIZING = (
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LayerNorm",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "RMSNorm",
)
LOOKING_UP = ("Embedding", "EmbeddingBag")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire on inputs far outside the range that usual initialization is made for, unless the model normalizes them first."""
    data = run.start_data
    if data is None:
        return Finding(ID, "not_applicable", "The training samples were not in memory, or hold no numbers.")
    if math.isnan(number(data.largest)):
        return Finding(ID, "not_applicable", "The inputs are those of a built-in task, which scales them.")
    first = run.start and run.start.first
    if first in (*NORMALIZING, *LOOKING_UP):
        return Finding(ID, "clear", f"The model's first module, {first}, takes inputs of any scale.")
    largest, spread = number(data.largest), number(data.spread)
    evidence = {"largest": largest, "spread": spread, "since_step": 0}
    fired = largest > thresholds["largest"] or 0 < spread < thresholds["spread"]
    reason = (
        f"The inputs reach {text(largest)} and their standard deviation is {text(spread)} (at most {thresholds['largest']:g} "
        f"and at least {thresholds['spread']:g} expected)."
    )
    return judged(ID, fired, reason, evidence, ())
