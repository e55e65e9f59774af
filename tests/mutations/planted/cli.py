"""Faults planted in `mltrainer/cli`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "one gate that holds is enough",
        "mltrainer/cli/gates.py",
        "holds = all(gate.holds for gate in gates)",
        "holds = any(gate.holds for gate in gates)",
        "tests/kept/test_kept.py::test_one_gate_that_does_not_hold_is_enough",
    ),
    Fault(
        "a reproduction that differs exits 0",
        "mltrainer/cli/runs.py",
        "return 0 if found.holds else 5",
        "return 0",
        "tests/runs/test_reproduce.py::test_another_initialization_differs_before_the_first_step",
    ),
    Fault(
        "expected and found are swapped",
        "mltrainer/cli/runs.py",
        "for bits in (step.expected, step.found))",
        "for bits in (step.found, step.expected))",
        "tests/cli/test_printing.py",
    ),
    Fault(
        "the losses' difference stands for the metric's",
        "mltrainer/cli/runs.py",
        "number(found.loss_difference), number(found.metric_difference)",
        "number(found.loss_difference), number(found.loss_difference)",
        "tests/cli/test_printing.py",
    ),
    Fault(
        "of two reasons the first is told as all",
        "mltrainer/cli/gates.py",
        'f" (+{len(reasons) - 1} more: mltrainer {command})" if len(reasons) > 1 else ""',
        '""',
        "tests/cli/test_printing.py",
    ),
    Fault(
        "a hidden file is listed as an artifact",
        "mltrainer/cli/gates.py",
        "if path.is_file() and not _is_hidden(path.relative_to(folder)))",
        "if path.is_file())",
        "tests/cli/test_printing.py",
    ),
    Fault(
        "an invalid mltrainer.yaml exits 0",
        "mltrainer/cli/gates.py",
        "    if fault is not None:\n        raise fault\n",
        "",
        "tests/cli/test_bad_input.py::test_the_status_says_what_is_wrong_with_the_project_file",
    ),
)
