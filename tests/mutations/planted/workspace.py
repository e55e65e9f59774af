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
        "in redacted(plain([*values]))]",
        "in plain([*values])]",
        "tests/test_written.py::test_each_writer_lets_no_secret_through",
    ),
    Fault(
        "a file in a digest of pictures may have another name",
        "mltrainer/workspace.py",
        "digest([[name, given.get(name) or sha256_file(folder / name)] for name in pictures_below(folder)])",
        "digest([[given.get(name) or sha256_file(folder / name)] for name in pictures_below(folder)])",
        "tests/test_workspace.py::test_a_folders_digest_is_that_of_names_and_digests",
    ),
    Fault(
        "a file in a digest of a tree may have another name",
        "mltrainer/workspace.py",
        "digest([[name, sha256_file(folder / name)] for name in names])",
        "digest([[sha256_file(folder / name)] for name in names])",
        "tests/test_workspace.py::test_a_folders_digest_is_that_of_names_and_digests",
    ),
    Fault(
        "sizes stand for what files hold from one byte less on",
        "mltrainer/workspace.py",
        "if sum(sizes) > MOST_OF_TREE:",
        "if sum(sizes) >= MOST_OF_TREE:",
        "tests/test_workspace.py::test_of_many_bytes_names_and_sizes_stand_for_what_the_files_hold",
    ),
    Fault(
        "the end of a file that is read at once is left out of its digest",
        "mltrainer/workspace.py",
        "return sha256_bytes(file.read())",
        "return sha256_bytes(file.read(READ_AT_ONCE - 2))",
        "tests/test_workspace.py::test_a_large_files_digest_is_that_of_all_its_bytes",
    ),
    Fault(
        "a seal is compared in its first digit",
        "mltrainer/workspace.py",
        'digest_of_plain(_without_seal(content)) == content["seal"])',
        'digest_of_plain(_without_seal(content))[:1] == content["seal"][:1])',
        "tests/test_workspace.py::test_an_edit_of_what_was_sealed_is_noticed",
    ),
    Fault(
        "a fork that unwinds closes the number of a lock",
        "mltrainer/workspace.py",
        "                os.ftruncate(descriptor, 0)\n            os.close(descriptor)",
        "                os.ftruncate(descriptor, 0)\n        os.close(descriptor)",
        "tests/test_workspace.py -k unwinds",
    ),
)
