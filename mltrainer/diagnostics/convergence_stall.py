"""Convergence stall: no progress over many epochs of a model that has not learned (page: `diagnostics/convergence_stall.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.diagnostics.signals import BOUNDED, R2, Finding, Run, median, percent, text

ID = "convergence_stall"
FIGURES = ("metric.svg", "learning_curves.svg", "update_layers.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where neither validation loss nor metric gained for many epochs, unless the model has learned: then it converged."""
    epochs = run.epochs
    if len(epochs) < 2:
        return Finding(ID, "not_applicable", f"{len(epochs)} evaluations show no progress or lack of it.")
    evidence = _measure(run, thresholds["gain"])
    without, patience = evidence["epochs_without_gain"], thresholds["epochs"]
    since = f"gained less than {percent(thresholds['gain'])} for {without:g} epochs, since epoch {evidence['last_gain_epoch']:g}"
    if evidence["span"] < patience:
        reason = f"The run covers {evidence['span']:g} epochs after its first evaluation; the rule needs {patience:g}."
        return Finding(ID, "not_applicable", reason, evidence)
    if without < patience:
        return Finding(ID, "clear", f"Validation loss and {run.metric_name} {since} (fewer than {patience:g}).", evidence)
    return _ended(run, evidence, f"Validation loss and {run.metric_name} {since}", thresholds)


def _ended(run: Run, evidence: dict[str, Any], flat: str, thresholds: Mapping[str, float]) -> Finding:
    """Judge a curve that is flat at its end: converged, learned by heart, or stalled."""
    least, patience = thresholds["learned_skill"], thresholds["epochs"]
    skill = f"skill {text(run.skill)}, learned means at least {text(least)}"
    if run.skill >= least:
        reason = f"Converged at epoch {evidence['last_gain_epoch']:g}: {flat} ({skill}); later epochs could be saved."
        return Finding(ID, "clear", reason, evidence)
    if run.keeps_up:
        reason = f"{flat} ({skill}), but no plain model does better on the same rows: there may be no more to learn from them."
        return Finding(ID, "clear", reason, evidence)
    if run.learned(least):
        reason = f"{flat} ({skill}), but the training set was learned (skill {text(run.train_skill)}): a gap, no stall."
        return Finding(ID, "clear", reason, evidence)
    hint = _hint(evidence["update_ratio"], thresholds["update_low"], thresholds["update_high"])
    reason = f"{flat} (limit {patience:g}), and the model has not learned ({skill}){hint}."
    return Finding(ID, "fired", reason, evidence, FIGURES)


def _hint(update: float, low: float, high: float) -> str:
    """Tell steps that are too short from steps that are too long, where the size of the updates says it."""
    if update < low:
        return (
            f"; an update changes the weights by {text(update)} of their size (usual: above {text(low)}): the steps are too short"
        )
    if update > high:
        return (
            f"; an update changes the weights by {text(update)} of their size (usual: below {text(high)}): the steps are too long"
        )
    return ""


def _update_ratio(run: Run) -> float:
    """Return the usual |update| / |weight| over layers and evaluations, NaN if it was not recorded."""
    return median(update for updates in run.layer_updates for update in updates)


def _measure(run: Run, gain: float) -> dict[str, Any]:
    epochs, name = run.epochs, run.metric_name
    sign = 1.0 if run.larger_is_better else -1.0
    loss = _last_gain([-value for value in run.validation_loss], gain, relative=True)
    absolute = name in BOUNDED or name == R2
    metric = _last_gain([sign * value for value in run.series("validation", name)], gain, relative=not absolute)
    last = epochs[max(loss, metric)]
    return {
        "epochs_without_gain": epochs[-1] - last,
        "last_gain_epoch": last,
        "span": epochs[-1] - epochs[0],
        "best_validation_loss": min((value for value in run.validation_loss if math.isfinite(value)), default=None),
        "skill": run.skill,
        "train_skill": run.train_skill,
        "update_ratio": _update_ratio(run),
    }


def _last_gain(values: Sequence[float], gain: float, relative: bool) -> int:
    """Return the place of the last value that was better (larger) than the best before it by a gain.

    Args:
        values: The curve, larger is better.
        gain: The least gain: of the size of the best value if relative, else absolute.
        relative: Which of the two.
    """
    best, place = -math.inf, 0
    for here, value in enumerate(values):
        step = gain * abs(best) if relative and math.isfinite(best) else gain
        if math.isfinite(value) and (best == -math.inf or value >= best + max(step, 1e-12)):
            best, place = value, here
    return place
