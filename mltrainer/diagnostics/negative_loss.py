"""Negative loss: below zero where no error can be (page: `diagnostics/negative_loss.md`)."""

from __future__ import annotations

import math

from mltrainer.diagnostics.signals import Finding, Run, finite, judged, number, text

FIGURES = ("learning_curves.svg",)


def find(run: Run, *, loss: float, difference: float, learned_skill: float) -> Finding:
    """Fire where the loss was below zero and nothing was learned, or it falls without end.

    A log-likelihood of a density, or a loss between two players, may be negative, too.
    """
    losses = finite([run.first_loss, *run.train_loss, *run.validation_loss])
    if not losses:
        return Finding("not_applicable", "No finite loss was recorded.")
    lowest = min(losses)
    first = next((row.epoch for row, found in zip(run.history, run.train_loss, strict=True) if found < loss), None)
    evidence = {"lowest": lowest, "since_epoch": first}
    reason = f"The lowest loss was {text(lowest)}"
    if lowest >= loss:
        return Finding("clear", f"{reason}.", evidence)
    if (why := _of_probabilities(run, difference)) is not None:
        return Finding("fired", f"{reason}: {why}.", evidence, FIGURES)
    if not math.isnan(run.reached_skill):
        is_learned = run.learned(learned_skill)
        why = "the model learned by it, as by the log-likelihood of a density" if is_learned else "nothing was learned by it"
        return judged(not is_learned, f"{reason}, and {why}.", evidence, FIGURES)
    falls = _falls_without_end(finite(run.train_loss))
    why = "it falls at its end as fast as at its beginning" if falls else "it came to an end, as that of a density does"
    return judged(falls, f"{reason}, and {why}.", evidence, FIGURES)


def _of_probabilities(run: Run, difference: float) -> str | None:
    """Return the fault of a binary cross-entropy whose targets are no probabilities, in words; None without a fault."""
    start = run.start
    if start is None or start.target is None or start.as_binary is None:
        return None
    loss, low, high = number(start.loss), number(start.target.lowest), number(start.target.largest)
    is_binary = abs(loss - number(start.as_binary)) <= difference * abs(loss)
    if not is_binary or (low >= 0 and high <= 1):
        return None
    return f"it is a binary cross-entropy, which has no lower end for targets from {text(low)} to {text(high)}"


def _falls_without_end(losses: list[float]) -> bool:
    """Return True if a loss fell in the last third of a run at least as much as in the first, or has too few evaluations."""
    third = len(losses) // 3
    return losses[-1 - third] - losses[-1] >= max(0.0, losses[0] - losses[third])
