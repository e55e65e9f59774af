"""Saturation: sigmoid or tanh units so far out that hardly a gradient passes (page: `diagnostics/saturation.md`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mltrainer.diagnostics.signals import Finding, Run, judged, number, percent

FIGURES = ("gradient_layers.svg",)


def find(run: Run, *, share: float) -> Finding:
    """Fire where most inputs of an activation are far out from the beginning: later a sure model's are there, too."""
    shares = dict(_shares(run))
    if not shares:
        return Finding("not_applicable", "The model has no sigmoid or tanh module, or none was observed.")
    module, largest = max(shares.items(), key=lambda one: one[1])
    reason = (
        f"{percent(largest)} of the inputs of {module} lay beyond 5 in the first half of the run, where less than 0.7 % of a "
        f"gradient passes (at most {percent(share)} allowed)."
    )
    return judged(largest > share, reason, {"module": module, "share": largest}, FIGURES)


def _shares(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the largest saturated share of each module, at the start and in the first half of the run's observations."""
    early = [signals.validation.modules for _, signals in run.seen[: math.ceil(len(run.seen) / 2)]]
    rows = [run.start.modules if run.start else {}, *early]
    # One without a later layer gives the answers, and is saturated if these are sure.
    answering = next(reversed(run.start.modules), None) if run.start else None
    for name in dict.fromkeys(name for row in rows for name in row if name != answering):
        shares = [number(row[name]["saturated"]) for row in rows if name in row and "saturated" in row[name]]
        if shares:
            yield name, max(shares)
