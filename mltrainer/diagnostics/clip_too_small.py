"""Clip too small: each step is clipped to a small part of its gradient (page: `diagnostics/clip_too_small.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, judged, median, number, percent, ratio, text

FIGURES = ("gradients.svg", "learning_curves.svg")


def find(run: Run, *, part: float, clipped: float, learned_skill: float) -> Finding:
    """Fire where nearly all steps were clipped to a small part of their norm, and little was learned."""
    limit, norm = run.clip_norm, median(run.norms("median"))
    share = median(number(row.clipped) for row in run.history)
    if math.isnan(limit) or math.isnan(norm) or math.isnan(share):
        return Finding(
            "not_applicable", "No gradients were clipped by their norm, or the optimizer's steps do not grow with them."
        )
    kept = ratio(limit, norm)
    evidence = {"clip": limit, "norm": norm, "kept": kept, "clipped": share, "skill": run.reached_skill, "since_step": 1}
    reason = (
        f"{percent(share)} of the steps were clipped to a norm of {text(limit)}, {percent(kept)} of the usual {text(norm)} "
        f"(at least {percent(part)} expected); the skill is {text(run.reached_skill)}"
    )
    fired = share >= clipped and kept < part and not run.learned(learned_skill)
    return judged(fired, f"{reason}.", evidence, FIGURES)
