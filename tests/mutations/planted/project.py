"""Faults planted in `mltrainer/project`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "what a person changed in the project file is told as a version's news",
        "mltrainer/project/upgrade.py",
        "for key, value in values.items() if key in TRAINING_KEYS",
        "for key, value in values.items() if key or TRAINING_KEYS",
        "tests/project/test_upgrade.py",
    ),
    Fault(
        "a cluster's job is not queued again after its checkpoint",
        "mltrainer/project/cluster_scripts.py",
        'if [ "$code" -eq 143 ]',
        'if [ "$code" -eq 144 ]',
        "tests/project/test_cluster_scripts.py",
    ),
    Fault(
        "a search's first rung lies within the warm-up",
        "mltrainer/project/model_size_defaults.py",
        "max(1, epochs // 9)",
        "max(1, epochs // 90)",
        "tests/project/test_model_size_defaults.py",
    ),
)
