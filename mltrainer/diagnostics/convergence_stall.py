"""Convergence stall: no progress over many epochs of a model that has not learned (page: `diagnostics/convergence_stall.md`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from mltrainer.diagnostics.signals import (
    BOUNDED,
    NO_SIGNAL,
    NO_TARGETS,
    R2,
    Finding,
    Run,
    evaluations_of,
    finite,
    median,
    percent,
    text,
)

FIGURES = ("metric.svg", "learning_curves.svg", "update_layers.svg")


def find(run: Run, *, epochs: float, gain: float, learned_skill: float, update_low: float, update_high: float) -> Finding:
    """Fire where neither validation loss nor metric gained for many epochs, unless the model has learned: then it converged."""
    if len(run.epochs) < 2:
        return Finding("not_applicable", f"In {evaluations_of(len(run.epochs))} neither progress nor a lack of it shows.")
    progress = _measure(run, gain)
    evidence = progress._asdict()
    if progress.span < epochs:
        reason = f"The run covers {progress.span:g} epochs after its first evaluation; the rule needs {epochs:g}."
        return Finding("not_applicable", reason, evidence)
    since = f"for {progress.epochs_without_gain:g} epochs, since epoch {progress.last_gain_epoch:g}"
    flat = f"Validation loss and {run.metric_name} gained less than {percent(gain)} {since}"
    if progress.epochs_without_gain < epochs:
        return Finding("clear", f"{flat} (fewer than {epochs:g}).", evidence)
    # Steps of an unusual size show a stall by themselves, whatever plain models reach.
    is_usual = not (progress.update_ratio < update_low or progress.update_ratio > update_high)
    if run.is_unjudged and is_usual:
        reason = NO_TARGETS if run.has_no_targets else "Where the loss ends is not known, and no plain answer does better."
        return Finding("not_applicable", f"{flat}. {reason}", evidence)
    excuse = _excuse(run, progress, flat, learned_skill, is_usual)
    if excuse:
        return Finding("clear", excuse, evidence)
    hint = _hint(progress.update_ratio, update_low, update_high)
    reason = f"{flat} (limit {epochs:g}), and the model has not learned ({_skill(run, learned_skill)}){hint}"
    is_elsewhere = run.shows_no_signal
    return Finding("fired", f"{reason}{NO_SIGNAL if is_elsewhere else ''}.", evidence, FIGURES, is_elsewhere)


def _excuse(run: Run, progress: _Progress, flat: str, least: float, is_usual: bool) -> str:
    """Return the reason why a curve that is flat at its end is no stall: it converged, or nothing is left to learn; or empty."""
    skill = _skill(run, least)
    # Every converged run stops improving: without this, healthy ones would be reported as stalls.
    if run.skill >= least:
        return f"Converged at epoch {progress.last_gain_epoch:g}: {flat} ({skill}); later epochs could be saved."
    if run.keeps_up and is_usual:
        return f"{flat} ({skill}), but no plain model does better on the same rows: there may be no more to learn from them."
    if run.reached_skill >= least:
        return f"{flat} ({skill}), but the training set was learned (skill {text(run.train_skill)}): a gap, no stall."
    return ""


def _skill(run: Run, least: float) -> str:
    return f"skill {text(run.skill)}, learned means at least {text(least)}"


def _hint(update: float, low: float, high: float) -> str:
    """Distinguish too short from too long steps, if the size of the updates shows it."""
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


class _Progress(NamedTuple):
    """The ends of a run's curves, in epochs unless another unit is named."""

    epochs_without_gain: float
    last_gain_epoch: float
    span: float
    best_validation_loss: float | None
    skill: float
    train_skill: float
    update_ratio: float


def _measure(run: Run, gain: float) -> _Progress:
    epochs, name = run.epochs, run.metric_name
    sign = 1.0 if run.larger_is_better else -1.0
    loss = _last_gain([-value for value in run.validation_loss], gain, relative=True)
    # Such a metric has an absolute scale, on which a gain means the same everywhere; a loss has none.
    absolute = name in BOUNDED or name == R2
    metric = _last_gain([sign * value for value in run.series("validation", name)], gain, relative=not absolute)
    last = epochs[max(loss, metric)]
    best = min(finite(run.validation_loss), default=None)
    return _Progress(
        epochs[-1] - last, last, epochs[-1] - epochs[0], best, run.skill, run.train_skill, update_ratio=_update_ratio(run)
    )


def _last_gain(values: Sequence[float], gain: float, relative: bool) -> int:
    """Return the place of the last value that was better (larger) than the best before it by a gain.

    Args:
        values: The curve, larger is better.
        gain: The least gain: of the size of the best value if relative, else absolute.
        relative: Whether the gain is relative.
    """
    best, place = -math.inf, 0
    for here, value in enumerate(values):
        step = gain * abs(best) if relative else gain
        # A curve at 0 would otherwise gain by staying there: 0 of 0.
        if math.isfinite(value) and (best == -math.inf or value >= best + max(step, 1e-12)):
            best, place = value, here
    return place
