"""Gradient conflict: targets that pull the same weights in opposite directions (page: `diagnostics/gradient_conflict.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.signals import SETTLED_ROWS, Finding, Run, finite, judged, number, settled, text

FIGURES = ("gradient_conflict.svg", "loss_terms.svg")


def find(run: Run, *, cosine: float, learned_skill: float) -> Finding:
    """Fire where the gradients of two losses oppose each other at the end, in a model that has not learned."""
    rows = [signals.cosines for _, signals in run.seen if signals.cosines]
    curves = {pair: [number(row.get(pair)) for row in rows] for row in rows for pair in row}
    ends = {pair: settled(curve) for pair, curve in curves.items() if len(finite(curve)) >= SETTLED_ROWS}
    if not ends:
        return Finding("not_applicable", "No gradients of several losses were compared, or at too few evaluations.")
    pair, lowest = min(ends.items(), key=lambda end: end[1])
    reason = (
        f"The gradients of {pair} had a cosine of {text(lowest)} at the end (conflict below {text(cosine)} in a model that has "
        f"not learned; skill {text(run.reached_skill)})."
    )
    evidence = {"losses": pair, "cosine": lowest, "skill": run.reached_skill}
    return judged(lowest < cosine and not run.learned(learned_skill), reason, evidence, FIGURES)
