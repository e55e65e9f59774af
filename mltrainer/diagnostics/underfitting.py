"""Underfitting: not even the training set is learned (page: `diagnostics/underfitting.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import NO_SIGNAL, Finding, Run, judged, text

FIGURES = ("metric.svg", "learning_curves.svg")


def find(run: Run, *, skill: float) -> Finding:
    """Fire where a finished run learned neither split, and not as much as plain models do."""
    if not run.finished:
        return Finding("not_applicable", "The run did not come to its end.")
    if math.isnan(run.reached_skill) or math.isnan(run.train_skill):
        return Finding("not_applicable", "No evaluation shows how much was learned.")
    epochs = run.epochs[-1]
    evidence = {"skill": run.skill, "train_skill": run.train_skill, "epochs": epochs, "since_step": run.step_at(-1)}
    reason = (
        f"After {epochs:g} {'epoch' if epochs == 1 else 'epochs'} the skill on the training set is {text(run.train_skill)} "
        f"and {text(run.skill)} on validation "
        f"(0: a constant answer, 1: perfect; one of them at least {text(skill)} expected)"
    )
    if run.shows_no_signal and not run.learned(skill):
        return Finding("fired", f"{reason}{NO_SIGNAL}.", evidence, FIGURES, is_elsewhere=True)
    return judged(not run.learned(skill), f"{reason}.", evidence, FIGURES)
