"""Loss spike: single losses far above all before them (page: `diagnostics/loss_spike.md`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, judged, number, ratio, text

ID = "loss_spike"
FIGURES = ("learning_curves.svg", "gradients.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where a step's loss stood far above those before it, and above the untrained model's."""
    if run.spikes is None:
        return Finding(ID, "not_applicable", "The run did not record which of its losses stood out.")
    spikes = [one for one in run.spikes if _is_spike(one, run.first_loss, thresholds)]
    if not spikes:
        return Finding(ID, "clear", "No loss of a full batch stood far above those before it.", {"spikes": 0})
    first = spikes[0]
    loss, usual, step = number(first.get("loss")), number(first.get("usual")), first.get("step")
    evidence: dict[str, Any] = {"spikes": len(spikes), "step": step, "loss": loss, "usual": usual, "since_step": step}
    reason = (
        f"The loss of step {step} was {text(loss)}, {text(ratio(loss, usual))} times the usual {text(usual)}; "
        f"{len(spikes)} such steps in the run."
    )
    return judged(ID, True, reason, evidence, FIGURES)


def _is_spike(spike: Mapping[str, Any], first_loss: float, thresholds: Mapping[str, float]) -> bool:
    loss, before = number(spike.get("loss")), number(spike.get("largest_before"))
    return loss > thresholds["times_largest"] * before and loss > thresholds["times_first"] * first_loss
