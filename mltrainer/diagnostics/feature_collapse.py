"""Feature collapse: samples with nearly the same features in a model without labels (page: `diagnostics/feature_collapse.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, settled, text

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, spread: float) -> Finding:
    """Fire where the features of the validation samples point nearly all the same way at the end."""
    spreads = run.series("validation", "feature_spread")
    if not finite(spreads):
        return Finding("not_applicable", "No spread of features was recorded: the strategies contrastive and masked measure it.")
    found = settled(spreads)
    evidence = {"feature_spread": found, "first": finite(spreads)[0]}
    return judged(found < spread, f"The spread of the features was {text(found)} at the end.", evidence, FIGURES)
