"""Faults planted in `mltrainer/trainer`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "every epoch has the first one's order",
        "mltrainer/trainer/data/addresses.py",
        "order = seeds.epoch_order(config.seed, epoch, np.arange(plan.samples))\n        ids = samples.ids[order]",
        "order = seeds.epoch_order(config.seed, 0, np.arange(plan.samples))\n        ids = samples.ids[order]",
        "tests/trainer",
    ),
    Fault(
        "every step has the same draws",
        "mltrainer/trainer/shards.py",
        'else seeds.key(seed, "step", step)',
        'else seeds.key(seed, "step", 1)',
        "tests/trainer",
    ),
    Fault(
        "a resumed run forgets its history",
        "mltrainer/trainer/stages.py",
        'self.history = list(tree["history"])',
        "self.history = []",
        "tests/trainer",
    ),
)
