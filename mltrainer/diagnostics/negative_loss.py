"""Negative loss: below zero where no error can be (page: `diagnostics/negative_loss.md`)."""

from __future__ import annotations

from collections.abc import Mapping

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, text

ID = "negative_loss"
FIGURES = ("learning_curves.svg",)


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where the loss of training or validation was below zero."""
    losses = finite([run.first_loss, *run.train_loss, *run.validation_loss])
    if not losses:
        return Finding(ID, "not_applicable", "No finite loss was recorded.")
    lowest = min(losses)
    first = next((row.epoch for row, loss in zip(run.history, run.train_loss, strict=True) if loss < thresholds["loss"]), None)
    evidence = {"lowest": lowest, "since_epoch": first}
    return judged(ID, lowest < thresholds["loss"], f"The lowest loss was {text(lowest)}.", evidence, FIGURES)
