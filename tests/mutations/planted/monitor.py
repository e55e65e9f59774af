"""Faults planted in `mltrainer/monitor`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a file cut back to the same length is read on",
        "mltrainer/monitor/tail.py",
        "anew = file.read(len(self._before)) != self._before",
        "anew = False",
        "tests/monitor/test_steps.py",
    ),
    Fault(
        "a line that is half written is taken",
        "mltrainer/monitor/tail.py",
        'whole = data[: data.rfind(b"\\n") + 1]',
        "whole = data",
        "tests/monitor/test_steps.py",
    ),
    Fault(
        "the second piece of a large chain is left out",
        "mltrainer/monitor/tail.py",
        "self._mark = ()  # there may be more",
        "pass",
        "tests/monitor/test_steps.py",
    ),
    Fault(
        "loss and gradient norm are swapped",
        "mltrainer/monitor/steps.py",
        "LOSS_AT, NORM_AT, BITS = 50, 41, 8",
        "LOSS_AT, NORM_AT, BITS = 41, 50, 8",
        "tests/monitor/test_steps.py",
    ),
    Fault(
        "a range's last step is left out",
        "mltrainer/monitor/steps.py",
        "place = slice(begin - self.first, end - self.first + 1)\n        loss, norm = (self._values[name][place].tolist()",
        "place = slice(begin - self.first, end - self.first)\n        loss, norm = (self._values[name][place].tolist()",
        "tests/trackers/test_follower.py::test_a_tracker_is_given_config_steps_evaluations_and_the_machine",
    ),
    Fault(
        "a step whose norm alone is not finite is not named",
        "mltrainer/monitor/steps.py",
        "np.flatnonzero(~(np.isfinite(loss) & np.isfinite(norm)))",
        "np.flatnonzero(~np.isfinite(loss))",
        "tests/monitor/test_steps.py",
    ),
    Fault(
        "a bucket's mean counts the steps that are not finite",
        "mltrainer/monitor/steps.py",
        "mean = total / np.maximum(kept, 1)",
        "mean = total / np.maximum(ends - starts, 1)",
        "tests/monitor/test_steps.py",
    ),
    Fault(
        "the best evaluation of a loss is the largest",
        "mltrainer/monitor/scene.py",
        'mode=told["mode"], ties=ties)',
        'mode="max", ties=ties)',
        "tests/monitor/test_follower.py::test_a_run_so_far_is_shown_by_its_best_evaluation",
    ),
    Fault(
        "a run that failed is shown as interrupted",
        "mltrainer/monitor/scene.py",
        '("failed" if (folder / ERROR_FILE).exists() else "interrupted")',
        '"interrupted"',
        "tests/monitor/test_follower.py::test_a_run_that_left_an_error_failed",
    ),
    Fault(
        "the last step is read off a line of weights",
        "mltrainer/monitor/scene.py",
        'line.split(b" ")[0 if not line.startswith(b"w ") else 1]',
        'line.split(b" ")[0]',
        "tests/monitor/test_follower.py::test_a_run_so_far_is_shown_by_its_best_evaluation",
    ),
    Fault(
        "a warning that the whole run does not bear out stays",
        "mltrainer/monitor/run.py",
        "self._findings = {row",
        "self._findings |= {row",
        "tests/phases/test_baseline.py::test_report_monitor_and_diagnose_say_the_same_of_a_run",
    ),
)
