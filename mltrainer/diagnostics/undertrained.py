"""Undertrained: the run ended while it was still getting better at full pace (page: `diagnostics/undertrained.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, percent, text, trend_of

FIGURES = ("learning_curves.svg", "metric.svg")
LEAST_ROWS = 2  # evaluations; with the first loss, a fall before and a fall after


def find(run: Run, *, pace: float, pace_behind: float, fall: float, steady: float, full_skill: float) -> Finding:
    """Fire where the validation loss fell steadily, and in the last third as fast as before, or behind plain models half so."""
    if not run.finished:
        return Finding("not_applicable", "The run did not come to its end.")
    losses = [run.first_loss, *run.validation_loss]
    if len(losses) <= LEAST_ROWS or not all(math.isfinite(loss) and loss > 0 for loss in losses):
        return Finding("not_applicable", "No trend: few evaluations, or losses that are not finite or not above 0.")
    trend = trend_of(losses)
    reason = (
        f"The validation loss fell by {percent(trend.fall)} of the first loss, {percent(trend.late_share)} of that in the last "
        f"{percent(trend.late)} of the run, and in {percent(trend.steady)} of the intervals; the skill is {text(run.skill)}."
    )
    # Steady as well: a run that recovers from a spike falls late, too.
    is_behind = "behind" in run.verdicts.values()  # so that there is more to learn
    least = pace_behind if is_behind else pace
    falls = trend.fall >= fall and trend.steady >= steady and trend.late_share / trend.late >= least
    since = run.step_at(-1 - max(1, len(run.history) // 3))
    fired = falls and not run.skill >= full_skill
    reason += " A plain model does better on the same rows." if is_behind else ""
    return judged(fired, reason, {**trend._asdict(), "skill": run.skill}, FIGURES, since_step=since)
