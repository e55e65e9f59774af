"""Symmetric weights: units of a layer that all begin alike and stay so (page: `diagnostics/symmetric_weights.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import Finding, Run, text

FIGURES = ("update_layers.svg",)


def find(run: Run, *, learned_skill: float) -> Finding:
    """Fire where every unit of a layer has the same initial weights, and the model has not learned."""
    if run.start is None:
        return Finding("not_applicable", "The run did not observe its initial weights.")
    layers = run.start.symmetric
    evidence = {"layers": layers, "skill": run.reached_skill}
    if not layers:
        return Finding("clear", "In every layer the units begin with different weights.", evidence)
    alike = f"All units of {', '.join(layers)} begin with the same weights, so that they learn the same"
    if run.learned(learned_skill):
        return Finding("clear", f"{alike}; other layers made them differ: the skill is {text(run.reached_skill)}.", evidence)
    reason = f"{alike}, and the model has not learned (skill {text(run.reached_skill)})."
    return Finding("fired", reason, {**evidence, "since_step": 0}, FIGURES)
