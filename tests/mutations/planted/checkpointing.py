"""Faults planted in `mltrainer/checkpointing`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a file's digest is not compared with the record's",
        "mltrainer/checkpointing/format.py",
        'if name in expected and expected[name] != row["sha256"]:',
        "if False:",
        "tests/checkpointing tests/tools/export",
    ),
    Fault(
        "a damaged checkpoint is taken for the newest intact one",
        "mltrainer/checkpointing/manifest.py",
        "        if not wrong:\n            return folder, skipped",
        "        if True:\n            return folder, skipped",
        "tests/checkpointing",
    ),
    Fault(
        "the best checkpoint may be deleted",
        "mltrainer/checkpointing/retention.py",
        'if "best" in names or "last" in names}',
        'if "last" in names}',
        "tests/checkpointing",
    ),
)
