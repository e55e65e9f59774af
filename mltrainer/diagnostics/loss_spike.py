"""Loss spike: a loss far above all before it (page: `diagnostics/loss_spike.md`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from mltrainer.diagnostics.signals import Finding, Run, median, number, percent, ratio, text
from mltrainer.records.run import Spike

FIGURES = ("learning_curves.svg", "gradients.svg")


def find(run: Run, *, times_largest: float, times_first: float, rise: float, share_of_first: float, times_norm: float) -> Finding:
    """Fire where a step's loss was far above those before it, or an interval's, together with its gradient norm."""
    spikes = [one for one in run.spikes or [] if _is_spike(one, times_largest, times_first * run.first_loss)]
    if spikes:
        return _of_steps(spikes)
    # None is not the empty list: if every step was examined and none stood out, the rule applies and is clear.
    if run.spikes is None and len(run.history) < 2:
        return Finding("not_applicable", "The run recorded neither losses that stood out nor two intervals to compare.")
    if run.spikes is None and all(math.isnan(loss) for loss in run.train_loss) and run.result.program:
        return Finding("not_applicable", "No loss of the program was seen.")
    leaps = [one for one in _intervals(run) if one.is_leap(rise, share_of_first * run.first_loss, times_norm)]
    if leaps:
        return _of_interval(run, leaps)
    clear = "No loss of a full batch, and of no interval, stood far above those before it."
    if not run.result.skipped:
        return Finding("clear", clear, {"spikes": 0})
    skipped = run.result.skipped
    if left_out := [[row.first, row.last] for row in skipped if row.first is not None]:
        told = f"Spikes at which the run went back, and left out the steps around them: {len(left_out)}."
        return Finding("clear", f"{clear} {told}", {"spikes": 0, "left_out_steps": left_out})
    steps = [row.step for row in skipped]
    return Finding("clear", f"{clear} Steps that were skipped as spikes: {len(steps)}.", {"spikes": 0, "skipped_steps": steps})


def _of_steps(spikes: Sequence[Spike]) -> Finding:
    first = spikes[0]
    loss, usual, step = number(first.loss), number(first.usual), first.step
    reason = (
        f"The loss of step {step} was {text(loss)}, {text(ratio(loss, usual))} times the usual {text(usual)}; "
        f"{len(spikes)} such steps in the run."
    )
    evidence = {"spikes": len(spikes), "step": step, "loss": loss, "usual": usual, "since_step": step}
    if not first.samples:
        return Finding("fired", reason, evidence, FIGURES)
    worst = first.samples[0]
    made = f" Sample {worst.sample} made {percent(number(worst.share))} of it, with a loss of {text(number(worst.loss))}."
    return Finding("fired", reason + made, {**evidence, "samples": [row.sample for row in first.samples]}, FIGURES)


def _of_interval(run: Run, leaps: Sequence[_Interval]) -> Finding:
    first = leaps[0]
    reason = (
        f"The mean loss rose from {text(first.before)} to {text(first.loss)} in the interval that ends at epoch "
        f"{run.epochs[first.place]:g}, with a gradient norm of {text(first.norm)} where {text(first.usual)} was usual."
    )
    evidence = {"spikes": len(leaps), "loss": first.loss, "usual": first.before, "norm": first.norm}
    return Finding("fired", reason, {**evidence, "since_step": run.step_at(first.place - 1)}, FIGURES)


class _Interval(NamedTuple):
    """The mean loss of an interval and of the one before, its largest gradient norm, and the usual norm until then."""

    place: int
    before: float
    loss: float
    norm: float
    usual: float

    def is_leap(self, rise: float, least: float, times_norm: float) -> bool:
        """Return True if the loss and the gradient norm both leapt; a spike on a falling curve does so too."""
        # Both at once, as a small rise near the end of a healthy run does no harm.
        return self.loss > rise * self.before and self.loss > least and self.norm > times_norm * self.usual


def _intervals(run: Run) -> list[_Interval]:
    losses, largest, medians = run.train_loss, run.norms("max"), run.norms("median")
    places = range(1, len(run.history))
    return [_Interval(nr, losses[nr - 1], losses[nr], largest[nr], median(medians[:nr])) for nr in places]


def _is_spike(spike: Spike, times_largest: float, least: float) -> bool:
    return number(spike.loss) > times_largest * number(spike.largest_before) and number(spike.loss) > least
