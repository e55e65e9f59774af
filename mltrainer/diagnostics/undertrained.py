"""Undertrained: the run ended while it was still getting better at full pace (page: `diagnostics/undertrained.md`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, judged, percent, ratio, text

ID = "undertrained"
FIGURES = ("learning_curves.svg", "metric.svg")
LEAST_ROWS = 2  # evaluations; with the first loss, a fall before and a fall after


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the validation loss fell steadily, and as fast in the last third of the run as before."""
    if not run.finished:
        return Finding(ID, "not_applicable", "The run did not come to its end.")
    losses = [run.first_loss, *run.validation_loss]
    if len(losses) <= LEAST_ROWS or not all(math.isfinite(loss) and loss > 0 for loss in losses):
        return Finding(ID, "not_applicable", "No trend: few evaluations, or losses that are not finite or not above 0.")
    evidence: dict[str, Any] = {**_trend(losses), "skill": run.skill}
    late = f"{percent(evidence['late_share'])} of that in the last {percent(evidence['late'])} of the run"
    reason = (
        f"The validation loss fell by {percent(evidence['fall'])} of the first loss, {late}, "
        f"and in {percent(evidence['steady'])} of the intervals; the skill is {text(run.skill)}."
    )
    fired = _still_falls(evidence, thresholds)
    if fired:
        evidence["since_step"] = run.step_at(-1 - max(1, len(run.history) // 3))
    return judged(ID, fired, reason, evidence, FIGURES)


def _still_falls(trend: Mapping[str, float], thresholds: Mapping[str, float]) -> bool:
    falling = trend["fall"] >= thresholds["fall"] and trend["steady"] >= thresholds["steady"]
    pace = trend["late_share"] / trend["late"]
    return bool(falling and pace >= thresholds["pace"] and not trend["skill"] >= thresholds["full_skill"])


def _trend(losses: Sequence[float]) -> dict[str, float]:
    """Return the whole fall of a loss as a share of the first, about the last third's share of it, and how often it fell."""
    fall = losses[0] - losses[-1]
    late = max(1, (len(losses) - 1) // 3)  # evaluations
    pairs = list(itertools.pairwise(losses[1:]))
    return {
        "fall": ratio(fall, abs(losses[0])),
        "late": late / (len(losses) - 1),
        "late_share": ratio(losses[-1 - late] - losses[-1], fall),
        "steady": sum(after < before for before, after in pairs) / len(pairs),
    }
