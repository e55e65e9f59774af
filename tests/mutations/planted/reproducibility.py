"""Faults planted in `mltrainer/reproducibility`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "the seed is no part of a draw's address",
        "mltrainer/reproducibility/seeds.py",
        'address = f"{seed}/{purpose}/',
        'address = f"{purpose}/',
        "tests/reproducibility/test_seeds.py",
    ),
    Fault(
        "the number of threads decides nothing",
        "mltrainer/reproducibility/environment.py",
        '        "threads": str(threads),\n        "GPU":',
        '        "GPU":',
        "tests/reproducibility/test_environment.py",
    ),
    Fault(
        "the chain does not cover the entry before",
        "mltrainer/reproducibility/fingerprint.py",
        'f"{value} {entry}".encode()',
        'f"{entry}".encode()',
        "tests/reproducibility/test_fingerprint.py",
    ),
)
