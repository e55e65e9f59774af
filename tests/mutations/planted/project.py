"""Faults planted in `mltrainer/project`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a search's first rung lies within the warm-up",
        "mltrainer/project/model_size_defaults.py",
        "max(1, epochs // 9)",
        "max(1, epochs // 90)",
        "tests/project/test_model_size_defaults.py",
    ),
)
