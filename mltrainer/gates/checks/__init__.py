"""The checks behind the gates' items, one module for each phase.

A check reads the program's measurements; the limits that it compares with are in the item's settings in the handbook.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.configs.items import SETTINGS
from mltrainer.gates.check import CHECKS, Outcome
from mltrainer.gates.checks import diagnostics, finalization, optimization, planning, training
from mltrainer.records.envelope import Envelope

MODULES = (planning, training, diagnostics, optimization, finalization)  # whose functions are in CHECKS by being imported


def run_check(name: str, record: Envelope[Any], settings: Mapping[str, Any]) -> Outcome:
    """Return a check's outcome; the item fails if the evidence is of another kind or contradicts itself."""
    again = f"mltrainer phase run {record.phase}"
    check = CHECKS[name]
    if not isinstance(record.evidence, check.evidence):
        stopped = hasattr(record.evidence, "stopped")  # by what another item says, which names what to do
        reason = f"{record.phase} stopped before it was measured" if stopped else "not measured here"
        return Outcome("fail", {"missing": reason}, None if stopped else again)
    try:
        asked = [SETTINGS[name].model_validate(dict(settings))] if name in SETTINGS else []
        return check.function(record, *asked)
    # A sealed record may still hold nonsense, such as a total of 0: that fails this item, and the others are judged all the same.
    except (LookupError, TypeError, ValueError, ArithmeticError) as hole:
        return Outcome("fail", {"missing": f"{type(hole).__name__}: {hole}"[:300]}, again)
