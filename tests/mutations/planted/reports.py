"""Faults planted in `mltrainer/reports`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "markup in a value acts",
        "mltrainer/reports/markdown.py",
        "shown = _MARKUP.sub(_reference, visible(value))",
        "shown = visible(value)",
        "tests/reports",
    ),
    Fault(
        "NaN is written as 0",
        "mltrainer/reports/values.py",
        '_NOT_FINITE = {"nan": "NaN"',
        '_NOT_FINITE = {"nan": "0"',
        "tests/reports",
    ),
    Fault(
        "a failing item is not named beside the verdict",
        "mltrainer/reports/views.py",
        'return [item for item in gate if item["verdict"] == "fail"]',
        "return []",
        "tests/reports tests/gates",
    ),
)
