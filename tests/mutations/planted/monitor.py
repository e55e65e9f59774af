"""Faults planted in `mltrainer/monitor`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "the best evaluation of a loss is the largest",
        "mltrainer/monitor/scene.py",
        "mode=told.mode, ties=ties)",
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
        "self._findings = {row.id",
        "self._findings |= {row.id",
        "tests/phases/test_baseline.py::test_report_monitor_and_diagnose_say_the_same_of_a_run",
    ),
    Fault(
        "a chain's first line is never its last",
        "mltrainer/monitor/scene.py",
        "[1 if start else 0 : -1]",
        "[1:-1]",
        "tests/monitor/test_follower.py -k first_step",
    ),
)
