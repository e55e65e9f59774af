"""Faults planted in `mltrainer/cli`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "`gate check` of a project that has not begun holds",
        "mltrainer/cli/gates.py",
        "holds = bool(shown) and all(s.gate.holds for s in shown)",
        "holds = all(s.gate.holds for s in shown)",
        "tests/cli/test_contract.py",
    ),
    Fault(
        "one gate that holds is enough",
        "mltrainer/cli/gates.py",
        "holds = bool(shown) and all(s.gate.holds for s in shown)",
        "holds = bool(shown) and any(s.gate.holds for s in shown)",
        "tests/cli/test_contract.py",
    ),
    Fault(
        "a reproduction that differs exits 0",
        "mltrainer/cli/runs.py",
        "return 0 if holds(found) else 5",
        "return 0",
        "tests/cli/test_contract.py tests/trainer/test_tampering.py",
    ),
    Fault(
        "expected and found are swapped",
        "mltrainer/cli/runs.py",
        'for key in ("expected", "found"))',
        'for key in ("found", "expected"))',
        "tests/cli/test_contract.py tests/trainer/test_tampering.py",
    ),
    Fault(
        "of two reasons the first is told as all",
        "mltrainer/cli/gates.py",
        'f" (+{len(reasons) - 1} more: mltrainer gate check)" if len(reasons) > 1 else ""',
        '""',
        "tests/cli/test_contract.py tests/gates",
    ),
    Fault(
        "a hidden file is listed as an artifact",
        "mltrainer/cli/gates.py",
        "if path.is_file() and not _is_hidden(path.relative_to(folder)))",
        "if path.is_file())",
        "tests/cli/test_contract.py tests/gates",
    ),
    Fault(
        "an invalid mltrainer.yaml exits 0",
        "mltrainer/cli/gates.py",
        "    if fault is not None:\n        raise fault\n",
        "",
        "tests/cli/test_contract.py tests/cli/test_bad_input.py",
    ),
)
