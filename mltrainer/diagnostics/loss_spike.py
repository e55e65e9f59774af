"""Loss spike: a loss far above all before it (page: `diagnostics/loss_spike.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mltrainer.diagnostics.signals import Finding, Run, judged, median, number, ratio, text
from mltrainer.records.run import Spike

ID = "loss_spike"
FIGURES = ("learning_curves.svg", "gradients.svg")


def find(run: Run, thresholds: Mapping[str, float]) -> Finding:
    """Fire where a step's loss stood far above those before it, or an interval's, together with its gradient norm."""
    spikes = [one for one in run.spikes or [] if _is_spike(one, run.first_loss, thresholds)]
    if spikes:
        return _of_steps(spikes)
    if run.spikes is None and len(run.history) < 2:
        return Finding(ID, "not_applicable", "The run recorded neither losses that stood out nor two intervals to compare.")
    if run.spikes is None and all(math.isnan(loss) for loss in run.train_loss) and run.result.program:
        return Finding(ID, "not_applicable", "No loss of the program was seen.")
    leaps = [place for place in range(1, len(run.history)) if _is_leap(run, place, thresholds)]
    if leaps:
        return _of_interval(run, leaps)
    return Finding(ID, "clear", "No loss of a full batch, and of no interval, stood far above those before it.", {"spikes": 0})


def _of_steps(spikes: Sequence[Spike]) -> Finding:
    first = spikes[0]
    loss, usual, step = number(first.loss), number(first.usual), first.step
    evidence: dict[str, Any] = {"spikes": len(spikes), "step": step, "loss": loss, "usual": usual, "since_step": step}
    reason = (
        f"The loss of step {step} was {text(loss)}, {text(ratio(loss, usual))} times the usual {text(usual)}; "
        f"{len(spikes)} such steps in the run."
    )
    return judged(ID, True, reason, evidence, FIGURES)


def _of_interval(run: Run, leaps: Sequence[int]) -> Finding:
    place = leaps[0]
    before, loss = run.train_loss[place - 1 : place + 1]
    norm, usual = run.norms("max")[place], median(run.norms("median")[:place])
    evidence = {"spikes": len(leaps), "loss": loss, "usual": before, "norm": norm, "since_step": run.step_at(place - 1)}
    reason = (
        f"The mean loss rose from {text(before)} to {text(loss)} in the interval that ends at epoch {run.epochs[place]:g}, "
        f"with a gradient norm of {text(norm)} where {text(usual)} was usual."
    )
    return judged(ID, True, reason, evidence, FIGURES)


def _is_leap(run: Run, place: int, thresholds: Mapping[str, float]) -> bool:
    """Return True if an interval's loss and its gradient norm both leapt; a spike on a falling curve does so too."""
    before, loss = run.train_loss[place - 1 : place + 1]
    norm, usual = run.norms("max")[place], median(run.norms("median")[:place])
    is_large = loss > thresholds["rise"] * before and loss > thresholds["share_of_first"] * run.first_loss
    return is_large and norm > thresholds["times_norm"] * usual


def _is_spike(spike: Spike, first_loss: float, thresholds: Mapping[str, float]) -> bool:
    loss, before = number(spike.loss), number(spike.largest_before)
    return loss > thresholds["times_largest"] * before and loss > thresholds["times_first"] * first_loss
