"""Faults planted in `mltrainer/trainers/native`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "every epoch has the first one's order",
        "mltrainer/trainers/native/data/addresses.py",
        "order = seeds.epoch_order(config.seed, epoch, plan.samples, config.rules)",
        "order = seeds.epoch_order(config.seed, 0, plan.samples, config.rules)",
        "tests/trainers/native/data/test_addresses.py",
    ),
    Fault(
        "the sum over processes is another one than that of one process",
        "mltrainer/trainers/native/ranks.py",
        "for slice_of_rank in received.split(each):",
        "for slice_of_rank in (received + received * 1e-6).split(each):",
        "tests/trainers/native/test_ranks.py -k two_processes_give",
    ),
    Fault(
        "no signal is heard where each step is one shard",
        "mltrainer/trainers/native/ranks.py",
        "            self.tree_sum([])\n",
        "            self._decided = [0 for _ in self.polls]\n",
        "tests/trainers/native/test_ranks.py -k signal_is_heard",
    ),
    Fault(
        "a process computes another's shards",
        "mltrainer/trainers/native/ranks.py",
        "return range(min(count, self.rank * each), min(count, (self.rank + 1) * each))",
        "return range(min(count, self.rank), min(count, self.rank + each))",
        "tests/trainers/native/test_ranks.py -k subtrees",
    ),
    Fault(
        "every step has the same draws",
        "mltrainer/trainers/native/shards.py",
        'else seeds.key(seed, "step", step)',
        'else seeds.key(seed, "step", 1)',
        "tests/trainers/native/test_stepping.py::test_draws_of_a_step_are_a_function_of_its_number",
    ),
    Fault(
        "a resumed run forgets its history",
        "mltrainer/trainers/native/stages.py",
        'self.history = [EvaluationRow(row) for row in tree["history"]]',
        "self.history = []",
        "tests/trainers/native/test_saving.py tests/trainers/native/test_callbacks.py",
    ),
    Fault(
        "a group of Adam has another's weight decay",
        "mltrainer/trainers/native/optimization/lean_steps.py",
        "            _update(group, tensors)\n",
        "            _update(self.param_groups[0], tensors)\n",
        "tests/trainers/native/optimization/test_optimizers.py::test_adam_takes_pytorchs_own_steps_bit_for_bit",
    ),
    Fault(
        "hooks of a step are left out",
        "mltrainer/trainers/native/optimization/lean_steps.py",
        "if registered or everywhere or",
        "if",
        "tests/trainers/native/optimization/test_optimizers.py::test_hooks_of_an_optimizers_step_are_called_and_a_profile_shows_it",
    ),
    Fault(
        "minutes between two checkpoints are taken for seconds",
        "mltrainer/trainers/native/stages.py",
        ">= 60 * minutes",
        ">= minutes",
        "tests/trainers/native/test_saving.py::test_minutes_are_counted_from_the_last_checkpoint",
    ),
    Fault(
        "minutes are counted from the beginning, not from the last checkpoint",
        "mltrainer/trainers/native/stages.py",
        "self.state_tree(), self.step, due)\n            self._saved_at = time.perf_counter()",
        "self.state_tree(), self.step, due)",
        "tests/trainers/native/test_saving.py::test_minutes_are_counted_from_the_last_checkpoint",
    ),
    Fault(
        "a checkpoint of so many steps is not kept as a periodic one",
        "mltrainer/trainers/native/saving.py",
        "return by_steps or (rest == 0",
        "return (rest == 0",
        "tests/trainers/native/test_saving.py::test_steps_that_are_a_multiple_are_saved_and_kept_as_periodic_ones",
    ),
    Fault(
        "where a model is observed, the loss gets the main output alone",
        "mltrainer/trainers/native/signals/observing.py",
        "return full(outputs), target, float(loss)",
        "return main_output(full(outputs)), target, float(loss)",
        "tests/trainers/native/test_signals.py::test_outputs_of_several_parts_are_observed_as_the_tensor_among_them_is",
    ),
    Fault(
        "targets are tried in the order that they have",
        "mltrainer/trainers/native/signals/observing.py",
        "target.roll(len(target) // 2, 0)",
        "target.roll(len(target), 0)",
        "tests/trainers/native/test_signals.py::test_what_is_observed",
    ),
    Fault(
        "a rehearsed evaluation has nothing of the model",
        "mltrainer/trainers/native/stages.py",
        'return row | ({"signals": self._at_evaluation()} if self.config.signals else {})',
        "return row",
        "tests/trainers/native/test_callbacks.py::test_a_callback_that_fails_at_the_first_evaluation_is_told_before_the_training",
    ),
    Fault(
        "a probe tells an evaluation once more",
        "mltrainer/trainers/native/session.py",
        "        if not self.trainer.history:\n            self.callbacks.evaluation(",
        "        if True:\n            self.callbacks.evaluation(",
        "tests/trainers/native/test_callbacks.py::test_a_probe_that_came_to_an_evaluation_tells_it_once",
    ),
    Fault(
        "a run's code is told among what it opened",
        "mltrainer/trainers/native/result.py",
        '*(row["path"] for row in code), *(row.path for row in session.task.files)',
        "*(row.path for row in session.task.files)",
        "tests/trainers/native/test_opened.py",
    ),
    Fault(
        "each of many runs tells what it opened",
        "mltrainer/trainers/native/session.py",
        'in ("probe", "train") and self.job.phase not in OF_MANY\n        return Opened',
        'in ("probe", "train")\n        return Opened',
        "tests/trainers/native/test_opened.py",
    ),
    Fault(
        "other files than planning saw are trained with",
        "mltrainer/trainers/native/session.py",
        "require_as_recorded(self.job.input_files or (), self.root)",
        "require_as_recorded((), self.root)",
        "tests/trainers/native/test_opened.py",
    ),
)
