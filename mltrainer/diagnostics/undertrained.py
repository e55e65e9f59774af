"""Undertrained: the run ended while it was still getting better at full pace (page: `diagnostics/undertrained.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, Trend, judged, percent, text, trend_of

FIGURES = ("learning_curves.svg", "metric.svg")
LEAST_ROWS = 2  # evaluations; with the first loss, a fall before and a fall after


def find(run: Run, *, pace: float, pace_behind: float, fall: float, rise: float, steady: float, full_skill: float) -> Finding:
    """Fire where the validation loss fell steadily, and in the last third as fast as before, or behind plain models half so.

    Also fire if the skill rose so: the loss of a classifier that is not sure yet shows little of it.
    """
    if not run.finished:
        return Finding("not_applicable", "The run did not come to its end.")
    losses = [run.first_loss, *run.validation_loss]
    if len(losses) <= LEAST_ROWS or not all(math.isfinite(loss) and loss > 0 for loss in losses):
        return Finding("not_applicable", "No trend: few evaluations, or losses that are not finite or not above 0.")
    trend = trend_of(losses)
    reason = f"{_sentence(trend)}; the skill is {text(run.skill)}."
    # Steady as well: a run that recovers from a spike falls late, too.
    is_behind = "behind" in run.verdicts.values()  # so that there is more to learn
    least = pace_behind if is_behind else pace

    def goes_on(found: Trend, by: float) -> bool:
        return found.fall >= by and found.steady >= steady and found.late_share / found.late >= least

    since = run.step_at(-1 - max(1, len(run.history) // 3))
    fired = (goes_on(trend, fall) or goes_on(trend_of(_errors(run)), rise)) and not run.skill >= full_skill
    reason += " A plain model does better on the same rows." if is_behind else ""
    return judged(fired, reason, {**trend._asdict(), "skill": run.skill}, FIGURES, since_step=since)


def _sentence(trend: Trend) -> str:
    whole, late = ("rose" if fall < 0 else "fell" for fall in (trend.fall, trend.late_fall))
    in_all = f"{whole} by {percent(abs(trend.fall))} of the first loss in all"
    at_last = f"{'' if late == whole else f'{late} '}by {percent(abs(trend.late_fall))} of it in the last {percent(trend.late)}"
    return f"The validation loss {in_all}, and {at_last} of the run; it fell in {percent(trend.steady)} of the intervals"


def _errors(run: Run) -> list[float]:
    """Return the share of what can be learned that is left before training, and at each evaluation."""
    return [1.0, *(1 - run.skill_of("validation", place) for place in range(len(run.history)))]
