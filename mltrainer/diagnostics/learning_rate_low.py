"""Learning rate too low: steps that hardly move the weights (page: `diagnostics/learning_rate_low.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, Trend, finite, judged, median, number, percent, ratio, text, trend_of

FIGURES = ("update_layers.svg", "learning_curves.svg")
USUAL_UPDATE = 1e-3  # |update| / |weight| of a healthy step (Karpathy, 2019)
LEAST_ROWS = 8  # evaluations; fewer show no creeping
MOST = 1.0  # largest suggested rate: no optimizer usually has a larger one; chosen by us
FALLBACK = 1e-3  # the shipped template's rate, for updates that are too short for the arithmetic to give a factor


def find(
    run: Run, *, update: float, gradient: float, learned_skill: float, slow: float, steady: float, fall: float, pace: float
) -> Finding:
    """Fire where no step moved the weights, though gradients arrived, and the model did not learn.

    Likewise where steps were short, and the loss crept down from evaluation to evaluation without flattening.
    """
    updates = finite([*run.first_updates, *run.updates])
    if not updates:
        return Finding("not_applicable", "The run recorded no size of its updates.")
    usual, largest = median(updates), max(updates)
    layer = _layer_norm(run)
    evidence = {"update_ratio": usual, "largest": largest, "layer_norm": layer, "skill": run.reached_skill}
    sentence = f"An update changed the weights by {text(usual)} of their size, {text(largest)} at most"
    trend = _trend(run)
    # No rate would help without gradients: that is another finding.
    if layer < gradient:
        reason = f"{sentence}, but a layer's gradient is {text(layer)} of the first loss: it is not the rate that is too small."
        return Finding("clear", reason, evidence)
    creeps = trend is not None and trend.steady >= steady and 0 < trend.fall < fall and trend.late_share / trend.late >= pace
    least = slow if creeps else update
    fired = largest < least and not run.learned(learned_skill)
    creep = f"; the loss crept down by {percent(trend.fall)} of the first, no slower at the end" if trend and creeps else ""
    reason = f"{sentence} (at least {text(least)} expected){creep}; the skill is {text(run.reached_skill)}."
    return judged(fired, reason, evidence, FIGURES, since_step=1, lr=_proposed(run, largest))


def _trend(run: Run) -> Trend | None:
    """Return the trend of the validation losses from the first evaluation on; None for few losses."""
    return trend_of(run.validation_loss) if len(run.validation_loss) > LEAST_ROWS else None


def _layer_norm(run: Run) -> float:
    """Return the usual gradient norm of a layer, relative to the first loss."""
    return ratio(median(norm for norms in run.layer_norms for norm in norms), abs(run.first_loss))


def _proposed(run: Run, update: float) -> float:
    """Return the learning rate at which an update would have its usual size, in one significant digit."""
    # At its last evaluations a schedule may have come down to 0.
    rates = [*(row.lr for row in run.history), *(group.lr for group in run.result.groups or [])]
    lr = max(finite(map(number, rates)), default=math.nan)
    proposed = lr * USUAL_UPDATE / update if update > 0 else math.nan
    return float(f"{proposed:.0e}") if 0 < proposed <= MOST else FALLBACK
