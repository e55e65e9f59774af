"""Text from records is shown as it is; it is never markup."""

from __future__ import annotations

import pytest

from mltrainer.reports import markdown as md


@pytest.mark.parametrize(
    "raw",
    [
        "<b>",
        "a|b",
        "&lt;",
        ">= x",
        "`x`",
        "*x*",
        "[a](b)",
        "{{7*7}}",
        "~~x~~",
        "$x$",
        "\\",
        "_x_",
        "# x",
        "- x",
        "> x",
        "http://e.org",
    ],
)
def test_markup_stands_behind_a_backslash(raw):
    assert "\\" in md.text(raw) or "&lt;" in md.text(raw)


@pytest.mark.parametrize(
    "raw", ["train_loss", "3.11.9", "a-b", "digits", "50 % of it, really (so it is)", "é 数", "a >= 0.95 -> b", "AT&T", 'say "x"']
)
def test_ordinary_text_stays_readable(raw):
    assert md.text(raw) == raw


def test_a_number_and_a_point_begin_no_list():
    assert md.text("1. first") == "1\\. first"


def test_code_with_backticks_or_bars_becomes_an_element():
    assert md.code("a/b.yaml") == "`a/b.yaml`"
    assert md.code(">= 0.95") == "`>= 0.95`"
    assert md.code(None) == "not measured"
    assert md.code("a`|b") == "<code>a\\`\\|b</code>"


def test_no_line_can_close_the_block_it_stands_in():
    assert md.block(["```", "x"]).split("\n") == ["````", "```", "x", "````"]


def test_a_table_has_as_many_cells_in_every_line():
    found = md.table(("a", "b"), [(md.text("x|y"), "1")], "lr")
    assert found.split("\n") == ["| a | b |", "| --- | ---: |", "| x\\|y | 1 |"]


def test_evidence_is_shown_one_value_a_line_and_long_lists_are_cut():
    found = md.evidence({"max_gap": 0.15, "runs": list(range(12)), "commit": None, "loss": "nan"})
    assert found == "max gap: 0.15<br>runs: 0, 1, 2, 3, 4, 5, 6, 7 and 4 more<br>commit: none<br>loss: NaN"


def test_what_was_measured_is_short_and_what_was_set_is_whole():
    assert md.plain_value([0.022346368715083775, "ab" * 32]) == "0.0223, `abababababababab`"
    assert md.setting({"lr": 0.00030000000001}) == "lr 0.00030000000001"


def test_a_setting_is_shown_whole_and_its_inner_lists_can_be_told_apart():
    groups = [{"match": "stem", "lr": 0.5, "betas": [0.9, 0.99]}, {"match": "head", "lr": 2.0, "betas": []}]
    assert md.setting(groups) == "(match stem, lr 0.5, betas (0.9, 0.99)), (match head, lr 2, betas none)"
    assert md.setting(list(range(12))) == ", ".join(map(str, range(12)))
    assert md.setting({str(nr): nr for nr in range(10)}).count(",") == 9


def test_an_embedded_document_cannot_leave_its_place():
    found = md.embedded("# A\n```\n# code\n", 3)
    assert found.split("\n") == ["#### A", "```", "# code", "```"]
