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
    Fault(
        "a file cut back to the same length is read on",
        "mltrainer/follow/tail.py",
        "has_restarted = file.read(len(self._before)) != self._before",
        "has_restarted = False",
        "tests/follow/test_steps.py",
    ),
    Fault(
        "a line that is half written is taken",
        "mltrainer/follow/tail.py",
        'whole = data[: data.rfind(b"\\n") + 1]',
        "whole = data",
        "tests/follow/test_steps.py",
    ),
    Fault(
        "the second piece of a large chain is left out",
        "mltrainer/follow/tail.py",
        "self._mark = ()  # there may be more",
        "pass",
        "tests/follow/test_steps.py",
    ),
    Fault(
        "loss and gradient norm are swapped",
        "mltrainer/follow/steps.py",
        "LOSS_AT, NORM_AT, BITS = 50, 41, 8",
        "LOSS_AT, NORM_AT, BITS = 41, 50, 8",
        "tests/follow/test_steps.py",
    ),
    Fault(
        "a range's last step is left out",
        "mltrainer/follow/steps.py",
        "place = slice(first - self.first, last - self.first + 1)",
        "place = slice(first - self.first, last - self.first)",
        "tests/trackers/test_sender.py::test_a_tracker_is_given_config_steps_evaluations_and_the_machine",
    ),
    Fault(
        "a step whose norm alone is not finite is not named",
        "mltrainer/follow/steps.py",
        "np.flatnonzero(~(np.isfinite(loss) & np.isfinite(norm)))",
        "np.flatnonzero(~np.isfinite(loss))",
        "tests/follow/test_steps.py",
    ),
    Fault(
        "a bucket's mean counts the steps that are not finite",
        "mltrainer/follow/steps.py",
        "mean = total / np.maximum(kept, 1)",
        "mean = total / np.maximum(ends - starts, 1)",
        "tests/follow/test_steps.py",
    ),
)
