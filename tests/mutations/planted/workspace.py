"""Faults planted in `mltrainer/workspace`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "a text is written with its secrets",
        "mltrainer/workspace.py",
        "write_atomic(path, redact(text).encode(errors=NOT_TEXT))",
        "write_atomic(path, text.encode(errors=NOT_TEXT))",
        "tests/test_written.py::test_each_writer_lets_no_secret_through",
    ),
    Fault(
        "JSON is written with its secrets",
        "mltrainer/workspace.py",
        "_indented(redacted(plain(value)))",
        "_indented(plain(value))",
        "tests/test_written.py::test_each_writer_lets_no_secret_through",
    ),
    Fault(
        "a line of JSON is appended with its secrets",
        "mltrainer/workspace.py",
        "json.dumps(redacted(plain(value)))",
        "json.dumps(plain(value))",
        "tests/test_written.py::test_each_writer_lets_no_secret_through",
    ),
)
