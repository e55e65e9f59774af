"""Wrong setup: a setting, a loss or a model that is wrong in itself (page: `diagnostics/wrong_setup.md`)."""

from __future__ import annotations

from mltrainer.diagnostics.causes import causes_of
from mltrainer.diagnostics.signals import Finding, Run


def find(run: Run, *, causes: float) -> Finding:
    """Fire where config and record show more than `causes` faults in themselves."""
    if not run.config:
        return Finding("not_applicable", "The config of the run is not known.")
    faults = [one for one in causes_of(run) if one.cause.is_wrong]
    evidence = {"causes": [one.cause.name for one in faults]}
    if len(faults) <= causes:
        return Finding("clear", "Neither config nor record show a cause that is wrong in itself.", evidence)
    return Finding("fired", " ".join(one.found.sentence for one in faults), {**evidence, "since_step": 0})
