"""Divergence: the training loss rises (page: `diagnostics/divergence.md`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, percent, ratio, settled, text

ID = "divergence"
FIGURES = ("learning_curves.svg", "gradients.svg")
LEAST_ROWS = 4  # evaluations; fewer are no trend


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the training loss ended above its first value: far above, or after rising all the time."""
    losses, first = run.train_loss, run.first_loss
    if len(finite(losses)) < LEAST_ROWS or not first > 0:
        return Finding(ID, "not_applicable", f"{len(finite(losses))} intervals with a finite training loss show no trend.")
    rises = _rises(losses)
    evidence: dict[str, Any] = {"first_loss": first, "end": settled(losses), "rises": rises, "train_skill": run.train_skill}
    reason = (
        f"The training loss began at {text(first)} and ended at {text(evidence['end'])}; it rose in {percent(rises)} of the "
        f"intervals. The skill on the training set is {text(run.train_skill)}."
    )
    fired = _ended_above(evidence, thresholds) and not run.train_skill >= thresholds["learned_skill"]
    if fired:
        lowest = min(range(len(losses)), key=lambda n: losses[n] if math.isfinite(losses[n]) else math.inf)
        evidence["since_step"] = run.step_at(lowest)
    return judged(ID, fired, reason, evidence, FIGURES)


def _ended_above(found: Mapping[str, float], thresholds: Mapping[str, float]) -> bool:
    times = ratio(found["end"], found["first_loss"])
    return times >= thresholds["times_first"] or (times > 1 and found["rises"] >= thresholds["rises"])


def _rises(losses: Sequence[float]) -> float:
    """Return in how many intervals the loss was above the one before."""
    pairs = list(itertools.pairwise(finite(losses)))
    return sum(after > before for before, after in pairs) / len(pairs)
