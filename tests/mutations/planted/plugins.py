"""Faults planted in `mltrainer/plugins.py`, and where plug-ins are bound."""

from __future__ import annotations

from tests.mutations.fault import Fault

DISCOVERY, OPTIMIZER = "tests/plugins/test_discovery.py", "tests/plugins/test_optimizer.py"

FAULTS = (
    Fault(
        "a distribution in a project is a plug-in",
        "mltrainer/plugins.py",
        "return any(os.path.lexists(folder / PROJECT_FILE)",
        "return False and any(os.path.lexists(folder / PROJECT_FILE)",
        DISCOVERY,
    ),
    Fault(
        "a link to a project's folder is not followed",
        "mltrainer/plugins.py",
        "places = {Path(os.path.abspath(entry)), Path(os.path.realpath(entry))}",
        "places = {Path(os.path.abspath(entry))}",
        DISCOVERY,
    ),
    Fault(
        "of two distributions with one name the first is taken",
        "mltrainer/plugins.py",
        "    if len(found) > 1:",
        "    if len(found) > 2:",
        DISCOVERY,
    ),
    Fault(
        "a message about two options together repeats all of them",
        "mltrainer/plugins.py",
        'is_hidden or not fault.place or fault.type == "missing"',
        'is_hidden or fault.type == "missing"',
        "tests/plugins/test_tracker.py",
    ),
    Fault(
        "a message repeats a value that the plug-in hides",
        "mltrainer/plugins.py",
        'is_hidden or not fault.place or fault.type == "missing"',
        'not fault.place or fault.type == "missing"',
        "tests/plugins/test_tracker.py",
    ),
    Fault(
        "a record leads out of where plug-ins are installed",
        "mltrainer/plugins.py",
        'or ".." in name.split("/"):',
        'or "..." in name.split("/"):',
        DISCOVERY,
    ),
)
