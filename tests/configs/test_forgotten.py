"""The file of forgotten rows."""

from __future__ import annotations

import pytest

from mltrainer.configs.forgotten import read_rows, rows_text
from mltrainer.errors import InputError


def test_rows_are_read_sorted_and_once(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("12\n3\n\n 12 \n0\n")
    assert read_rows(path, "rows.txt") == [0, 3, 12]
    path.write_text(rows_text([0, 3, 12]))
    assert read_rows(path, "rows.txt") == [0, 3, 12]
    path.write_bytes(b"\xef\xbb\xbf12\r\n3\r\n0\r\n")  # as a spreadsheet on Windows writes it
    assert read_rows(path, "rows.txt") == [0, 3, 12]


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("1\ndigits.csv:3\n", "rows.txt:2", "digits.csv:3"),
        ("1\n\n-2\n", "rows.txt:3", "-2"),
        ("\u0663\n", "rows.txt:1", "\u0663"),
        ("\n", "rows.txt", "none"),
    ],
)
def test_what_is_no_row_is_refused_with_its_line(tmp_path, text, where, found):
    path = tmp_path / "rows.txt"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_rows(path, "rows.txt")
    assert error.value.where == where
    assert found in error.value.message


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file") as error:
        read_rows(tmp_path / "rows.txt", "rows.txt")
    assert error.value.where == "rows.txt"
