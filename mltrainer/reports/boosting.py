"""Planning's sentences on gradient boosting and a network on a table, for the terminal and the report."""

from __future__ import annotations

from mltrainer.records.references import BoostingPlan
from mltrainer.reports.values import counted, number

NETWORK = "A network is likely at least as good as gradient boosting on this table"
AHEAD = "Gradient boosting is ahead of smooth models on this table, and the baseline must show whether a network is, too"
LEVEL = "Gradient boosting is level with smooth models on this table, and the baseline must show whether a network is ahead"


def likely(found: BoostingPlan) -> str:
    """Return the verdict on the two, as the beginning of a sentence."""
    if found.likely:
        return NETWORK
    return LEVEL if found.lead and found.lead[1] >= 0 else AHEAD


def figures(found: BoostingPlan) -> str:
    """Return the figures behind the verdict, on the validation rows, in words."""
    boosting, smooth = found.boosting, found.smooth
    return (
        f"on {counted(found.samples, 'validation row')} {boosting.title} has {found.metric} {number(boosting.value)}, and "
        f"{smooth.title}, the better of two smooth models that stand for a network, {number(smooth.value)}"
    )


def boosting_line(found: BoostingPlan) -> str:
    """Return verdict and figures on a line, with the command that begins a project with boosting where that may be better."""
    begin = f"; to begin with boosting: {found.command}" if found.command and not found.likely else ""
    return f"{likely(found)}: {figures(found)}{begin}"
