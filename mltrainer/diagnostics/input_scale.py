"""Input scale: inputs so large or so small that usual weights and rates do not suit (page: `diagnostics/input_scale.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, number, text

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


def find(run: Run, *, largest: float, spread: float) -> Finding:
    """Fire on inputs far outside the range that usual initialization is made for, unless the model normalizes them first."""
    data = run.start_data
    if data is None:
        return Finding("not_applicable", "The training samples were not in memory, or hold no numbers.")
    if math.isnan(number(data.largest)):
        return Finding("not_applicable", "The inputs are those of a built-in task, which scales them.")
    first = run.start and run.start.first
    # What normalizes first takes any scale, and an embedding's inputs are numbers of rows.
    if first in (*NORMALIZING, *LOOKING_UP):
        return Finding("clear", f"The model's first module, {first}, takes inputs of any scale.")
    reach, deviation = number(data.largest), number(data.spread)
    fired = reach > largest or 0 < deviation < spread
    reason = (
        f"The inputs reach {text(reach)} and their standard deviation is {text(deviation)} (at most {largest:g} "
        f"and at least {spread:g} expected)."
    )
    return judged(fired, reason, {"largest": reach, "spread": deviation, "since_step": 0})
