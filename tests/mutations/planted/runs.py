"""Faults planted in `mltrainer/runs`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a finished run's checkpoints are not looked at",
        "mltrainer/runs/contract.py",
        'return result if all(_is(project.root / row["path"], row["sha256"]) for row in files) else None',
        "return result if files is not None else None",
        "tests/runs tests/trainer/test_tampering.py tests/gates tests/cli/test_interruptions.py",
    ),
    Fault(
        "a reproduction with another end counts as identical",
        "mltrainer/runs/retrain.py",
        'same_end = in_part or all(again[key] == result[key] for key in ("weights_sha256", "metrics"))',
        "same_end = True",
        "tests/runs tests/trainer/test_tampering.py",
    ),
    Fault(
        "a tool's exit without a word passes",
        "mltrainer/runs/launcher.py",
        "    if end is None:\n        raise InputError(",
        "    if False:\n        raise InputError(",
        "tests/runs tests/cli/test_users_code.py",
    ),
)
