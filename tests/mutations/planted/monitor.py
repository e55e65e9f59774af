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
    Fault(
        "precision is of the samples of a class, not of those taken for it",
        "mltrainer/monitor/details.py",
        "    taken = [sum(column) for column in zip(*counts, strict=True)]",
        "    taken = [sum(row) for row in counts]",
        "tests/monitor/test_details.py::test_each_class_is_counted_from_the_matrix",
    ),
    Fault(
        "a run on another seed, of the comparison, passes for a trial",
        "mltrainer/monitor/details.py",
        "        if values and _without(values, space) == of_study:",
        "        if values:",
        "tests/monitor/test_details.py",
    ),
    Fault(
        "a page waits for the project until its runs are read",
        "mltrainer/monitor/server.py",
        "            shown = self._tell_project(chosen)\n            with self.server.follower.watching(chosen) as runs:\n",
        "            with self.server.follower.watching(chosen) as runs:\n                shown = self._tell_project(chosen)\n",
        "tests/monitor/test_server.py::test_a_page_has_the_project_before_a_run_is_read",
    ),
    Fault(
        "a name that was given later is not shown",
        "mltrainer/monitor/scene.py",
        "        if mark != self._labels[0]:",
        "        if self._labels[0] is None:",
        "tests/monitor/test_terminal.py::test_a_run_is_listed_by_the_name_that_it_was_given",
    ),
)
