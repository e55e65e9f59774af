"""Loss oscillation: a curve that swings instead of settling (page: `diagnostics/loss_oscillation.md`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from mltrainer.diagnostics.signals import R2, Finding, Run, evaluations_of, judged, percent, text

FIGURES = ("learning_curves.svg", "metric.svg")
LEAST_ROWS = 8  # evaluations; fewer have no rhythm


def find(run: Run, *, swing: float, share: float) -> Finding:
    """Fire where the training metric, or else the loss, fell back again and again by more than its noise."""
    what, values = _curve(run)
    if what != run.score and run.has_no_scale:
        return Finding("not_applicable", "Where the loss ends is not known, and so not how large its swings are.")
    if len(values) < LEAST_ROWS or not all(map(math.isfinite, values)):
        return Finding("not_applicable", f"{evaluations_of(len(values))} of the training set: too few for swings to show.")
    swings = _swings(values, swing)
    swing_share = len(swings) / len(values)
    reason = (
        f"The training {what} fell back by at least {text(swing)} in {len(swings)} of {len(values)} "
        f"evaluations ({percent(swing_share)}; at most {percent(share)} expected)."
    )
    evidence = {"curve": what, "swings": len(swings), "share": swing_share}
    if run.beats_constant is False:
        return Finding("clear", f"{reason} Nothing was learned that could swing: {run.beside_constant}.", evidence)
    return judged(swing_share > share, reason, evidence, FIGURES, since_step=run.step_at(swings[0]) if swings else None)


def _curve(run: Run) -> tuple[str, list[float]]:
    """Return the training curve that is judged: a metric that ends at 1, else the loss relative to the first one."""
    if run.score and run.score != R2:
        return run.score, run.series("train", run.score)
    first = abs(run.first_loss)
    return "loss (relative to the first)", [loss / first for loss in run.series("train", "loss")] if first > 0 else []


def _swings(values: Sequence[float], least: float) -> list[int]:
    """Return the places of the low points that follow a high point of the curve at a distance (AutoTrainer, 2021)."""
    turns = [n for n in range(1, len(values) - 1) if (values[n] - values[n - 1]) * (values[n + 1] - values[n]) < 0]
    pairs = itertools.pairwise(turns)
    return [after for before, after in pairs if values[before] - values[after] >= least]
