"""Evaluation mode: operations for training alone run in evaluation, too (page: `diagnostics/evaluation_mode.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, kinds: float) -> Finding:
    """Fire where the untrained model called dropout, or batch norm by the batch's own statistics, in evaluation mode."""
    start = run.start
    if start is None or start.training_calls is None:
        return Finding("not_applicable", "The calls of the model in evaluation mode were not observed.")
    calls = start.training_calls
    evidence = {"calls": calls}
    if len(calls) <= kinds:
        return Finding("clear", "In evaluation mode neither dropout nor the batch's own statistics were called.", evidence)
    reason = f"In evaluation mode the model calls {', '.join(calls)}: its answers are not those of the trained model."
    return Finding("fired", reason, {**evidence, "since_step": 0}, FIGURES)
