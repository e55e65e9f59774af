"""Faults planted in `mltrainer/follow`."""

from __future__ import annotations

from tests.mutations.fault import Fault

LOG, LOG_TESTS = "mltrainer/follow/log.py", "tests/follow/test_log.py"
FAULTS = (
    Fault(
        "time: a process that was killed counts as long as the one before it",
        LOG,
        "            times.append(0.0)\n",
        "            times.append(times[-1] if times else 0.0)\n",
        LOG_TESTS,
    ),
    Fault(
        "time: the last process's alone",
        LOG,
        "    return sum(times)\n",
        "    return sum(times[-1:])\n",
        LOG_TESTS,
    ),
    Fault(
        "log: a row may lack its epoch",
        LOG,
        '"row": ("step", "epoch")',
        '"row": ("step",)',
        LOG_TESTS,
    ),
    Fault(
        "log: a truth is taken for a number",
        LOG,
        " and not isinstance(value, bool)",
        "",
        LOG_TESTS,
    ),
    Fault(
        "log: a step without an end is taken for a number",
        LOG,
        " and math.isfinite(value)",
        "",
        LOG_TESTS,
    ),
    Fault(
        "log: a row may lack its training metrics",
        LOG,
        '"row": ("train", "validation")',
        '"row": ("validation",)',
        LOG_TESTS,
    ),
)
