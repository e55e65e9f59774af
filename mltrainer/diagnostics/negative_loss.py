"""Negative loss: below zero where no error can be (page: `diagnostics/negative_loss.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, text

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, loss: float) -> Finding:
    """Fire where the loss of training or validation was below zero."""
    losses = finite([run.first_loss, *run.train_loss, *run.validation_loss])
    if not losses:
        return Finding("not_applicable", "No finite loss was recorded.")
    lowest = min(losses)
    first = next((row.epoch for row, found in zip(run.history, run.train_loss, strict=True) if found < loss), None)
    evidence = {"lowest": lowest, "since_epoch": first}
    return judged(lowest < loss, f"The lowest loss was {text(lowest)}.", evidence, FIGURES)
