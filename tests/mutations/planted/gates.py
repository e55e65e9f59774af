"""Faults planted in `mltrainer/gates`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a record of another chain is taken",
        "mltrainer/gates/gate.py",
        'if data.get("previous") != expected:',
        "if False:",
        "tests/gates",
    ),
    Fault(
        "an input of any role may be missing",
        "mltrainer/gates/gate.py",
        'if found is None and row["role"] in AWAY_ROLES:',
        "if found is None:",
        "tests/gates",
    ),
    Fault(
        "any difference of an export passes",
        "mltrainer/gates/checks/finalization.py",
        "isinstance(relative, int | float) and relative <= limit",
        "isinstance(relative, int | float) and relative <= 1e9",
        "tests/gates",
    ),
)
