"""Tables in a terminal are aligned and cannot act on the terminal."""

from __future__ import annotations

import io

import pytest

from mltrainer.reports.terminal import folded, table


def test_columns_are_aligned_and_numbers_stand_on_the_right():
    found = table([("baseline", "passed", 9.5), ("planning", "stale", 10.25)], ["phase", "state", "s"])
    assert found.split("\n")[2:4] == ["baseline  passed    9.5", "planning  stale   10.25"]


def test_columns_without_names_have_no_head():
    assert table([("id", "ab12"), ("steps", "7")], ["", ""]) == "id     ab12\nsteps  7\n"


def test_control_characters_are_shown():
    found = table([("\x1b[31mred\r\n", "x")], ["a", "b"])
    assert "\x1b" not in found
    assert "\\x1b[31mred\\r\\n" in found
    assert found.count("\n") == 3


def test_wide_characters_take_two_columns():
    lines = table([("数", "x"), ("ab", "y")], ["a", "b"]).split("\n")
    assert lines[2] == "数  x"
    assert lines[3] == "ab  y"


def test_long_cells_are_cut_but_the_last_column_is_whole():
    found = table([("x" * 100, "y" * 100)], ["a", "b"], limit=10)
    assert "x" * 9 + "…" in found
    assert "y" * 100 in found


def test_no_rows_and_no_value_are_said():
    assert table([], ["a"]) == "(none)\n"
    assert table([(None, "x")], ["a", "b"]).split("\n")[2] == "   x"


LONG_SENTENCE = "next: " + "word " * 30 + "then `mltrainer phase run planning --set epochs=3` and a gap of 33 %"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_sentence_is_folded_between_words_on_a_terminal_and_whole_in_a_pipe(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    shown = folded(LONG_SENTENCE, Screen()).split("\n")
    assert max(map(len, shown)) <= 60
    assert all(line.startswith("  word") for line in shown[1:3])
    assert " ".join(line.strip() for line in shown) == LONG_SENTENCE.strip()
    assert folded(LONG_SENTENCE, io.StringIO()) == LONG_SENTENCE


@pytest.mark.parametrize("copied", ["mltrainer phase run planning --set a=1 --set b=[2,3]", "`a b c d e f g h i j k l m n o p`"])
def test_what_is_copied_is_never_parted(copied, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert copied in folded(f"some words before it, and then: {copied}, and some after it", Screen())


def test_a_wide_row_of_a_table_is_folded_below_its_last_column(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    shown = folded(table([["pass", "seen", "one two three four five six seven"]], ["verdict", "item", "evidence"]), Screen())
    assert shown.split("\n") == [
        "verdict  item  evidence",
        "-------  ----  -------------------------",
        "pass     seen  one two three four five",
        "               six seven",
        "",
    ]
