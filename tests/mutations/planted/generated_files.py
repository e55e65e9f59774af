"""Faults planted in `mltrainer/generated_files`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a file that a person changed is overwritten",
        "mltrainer/generated_files.py",
        "    return sha256_bytes(data[:low] + UNKNOWN.encode() + data[high:]) == match[1].decode()",
        "    return low > 0",
        "tests/serving/test_templates.py::test_a_file_that_a_person_changed_is_not_overwritten_and_no_other_is_written",
    ),
    Fault(
        "files are written beside the project",
        "mltrainer/generated_files.py",
        "if not target.resolve().is_relative_to(root) or",
        "if",
        "tests/project/test_training_arguments.py::test_a_folder_outside_the_project_is_refused",
    ),
)
