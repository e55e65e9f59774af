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
    Fault(
        "minutes between two checkpoints are taken for seconds",
        "mltrainer/trainer/stages.py",
        ">= 60 * minutes",
        ">= minutes",
        "tests/trainer/test_saving.py::test_minutes_are_counted_from_the_last_checkpoint",
    ),
    Fault(
        "minutes are counted from the beginning, not from the last checkpoint",
        "mltrainer/trainer/stages.py",
        "self.state_tree(), self.step, due)\n            self._saved_at = time.perf_counter()",
        "self.state_tree(), self.step, due)",
        "tests/trainer/test_saving.py::test_minutes_are_counted_from_the_last_checkpoint",
    ),
    Fault(
        "a checkpoint of so many steps is not kept as a periodic one",
        "mltrainer/trainer/saving.py",
        "return by_steps or (rest == 0",
        "return (rest == 0",
        "tests/trainer/test_saving.py::test_steps_that_are_a_multiple_are_saved_and_kept_as_periodic_ones",
    ),
)
