"""Tables in a terminal are aligned and cannot act on the terminal."""

from __future__ import annotations

from mltrainer.reports.terminal import table


def test_columns_are_aligned_and_numbers_stand_on_the_right() -> None:
    found = table([("baseline", "passed", 9.5), ("planning", "stale", 10.25)], ["phase", "state", "s"])
    assert found.split("\n")[2:4] == ["baseline  passed    9.5", "planning  stale   10.25"]


def test_columns_without_names_have_no_head() -> None:
    assert table([("id", "ab12"), ("steps", "7")], ["", ""]) == "id     ab12\nsteps  7\n"


def test_control_characters_are_shown() -> None:
    found = table([("\x1b[31mred\r\n", "x")], ["a", "b"])
    assert "\x1b" not in found
    assert "\\x1b[31mred\\r\\n" in found
    assert found.count("\n") == 3


def test_wide_characters_take_two_columns() -> None:
    lines = table([("数", "x"), ("ab", "y")], ["a", "b"]).split("\n")
    assert lines[2] == "数  x"
    assert lines[3] == "ab  y"


def test_long_cells_are_cut_but_the_last_column_is_whole() -> None:
    found = table([("x" * 100, "y" * 100)], ["a", "b"], limit=10)
    assert "x" * 9 + "…" in found
    assert "y" * 100 in found


def test_no_rows_and_no_value_are_said() -> None:
    assert table([], ["a"]) == "(none)\n"
    assert table([(None, "x")], ["a", "b"]).split("\n")[2] == "   x"
