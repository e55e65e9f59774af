"""Divergence: the training loss rises (page: `diagnostics/divergence.md`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, percent, ratio, settled, text

FIGURES = ("learning_curves.svg", "gradients.svg")
LEAST_ROWS = 4  # evaluations; fewer are no trend


def find(run: Run, *, times_first: float, rises: float, learned_skill: float) -> Finding:
    """Fire where the training loss ended above its first value: far above, or after rising all the time."""
    losses, first = run.train_loss, run.first_loss
    # A first loss at or below 0, as a likelihood of densities may have, is nothing to compare with.
    if len(finite(losses)) < LEAST_ROWS or not first > 0:
        return Finding("not_applicable", f"{len(finite(losses))} intervals with a finite training loss show no trend.")
    end, rising = settled(losses), _rises(losses)
    evidence = {"first_loss": first, "end": end, "rises": rising, "train_skill": run.train_skill}
    reason = (
        f"The training loss began at {text(first)} and ended at {text(end)}; it rose in {percent(rising)} of the "
        f"intervals. The skill on the training set is {text(run.train_skill)}."
    )
    times = ratio(end, first)
    # Noise rises in about every second interval, ascent in place of descent in each.
    above = times >= times_first or rising >= rises
    lowest = min(range(len(losses)), key=lambda n: losses[n] if math.isfinite(losses[n]) else math.inf)
    # A mean that a few bad samples dominate says nothing about the model; the validation loss does.
    is_of_few = settled(run.validation_loss) < first
    reason += f" The validation loss ended at {text(settled(run.validation_loss))}, below that beginning." if is_of_few else ""
    # `not >=`: an unmeasured skill is no excuse.
    fired = above and not run.train_skill >= learned_skill and not is_of_few
    return judged(fired, reason, evidence, FIGURES, since_step=run.step_at(lowest))


def _rises(losses: Sequence[float]) -> float:
    """Return the number of intervals whose loss is above the one before."""
    pairs = list(itertools.pairwise(finite(losses)))
    return sum(after > before for before, after in pairs) / len(pairs)
