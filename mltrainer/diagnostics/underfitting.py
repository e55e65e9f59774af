"""Underfitting: not even the training set is learned (page: `diagnostics/underfitting.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import NO_SIGNAL, Finding, Run, judged, text

FIGURES = ("metric.svg", "learning_curves.svg")


def find(run: Run, *, skill: float) -> Finding:
    """Fire where a finished run learned neither split, and not as much as plain models do."""
    if not run.finished:
        return Finding("not_applicable", "The run did not come to its end.")
    if is_unknown(run):
        return Finding("not_applicable", "No evaluation shows how much was learned.")
    evidence = {"skill": run.skill, "train_skill": run.train_skill, "epochs": run.epochs[-1], "since_step": run.step_at(-1)}
    reason = shown(run, skill)
    if run.shows_no_signal and not run.learned(skill):
        return Finding("fired", f"{reason}{NO_SIGNAL}.", evidence, FIGURES, is_elsewhere=True)
    return judged(not run.learned(skill), f"{reason}.", evidence, FIGURES)


def is_unknown(run: Run) -> bool:
    """Return True if no evaluation shows how much was learned."""
    return math.isnan(run.reached_skill) or math.isnan(run.train_skill)


def shown(run: Run, least: float) -> str:
    """Return the skills by which this rule and the fit judge, in words, without the full stop."""
    epochs = run.epochs[-1]
    return (
        f"After {epochs:g} {'epoch' if epochs == 1 else 'epochs'} the skill on the training set is {text(run.train_skill)} "
        f"and at the best evaluation {text(run.skill)} on validation "
        f"(0: a constant answer, 1: perfect; one of them at least {text(least)} expected)"
    )
