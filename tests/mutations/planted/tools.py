"""Faults planted in `mltrainer/tools`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "an ablation's seeds are those of a search's comparison",
        "mltrainer/tools/ablation/program.py",
        'fresh_seeds(config.seed, "ablation", job.seeds)',
        'fresh_seeds(config.seed, "comparison", job.seeds)',
        "tests/tools/ablation",
    ),
    Fault(
        "a result of an ablation lacks the weights",
        "mltrainer/tools/ablation/program.py",
        'for key in ("parameters", "weights_sha256")',
        'for key in ("parameters",)',
        "tests/tools/ablation",
    ),
)
