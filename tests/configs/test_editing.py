"""A config file is changed key by key: what did not change keeps its comments and its layout."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.configs.editing import edited, rewritten

TEXT = """# head
# about a
a: 1  # inline

# about b
b:
  c: 2
  # deep
  d: [1,
    2]
# tail
"""
VALUES: dict[str, Any] = {"a": 1, "b": {"c": 2, "d": [1, 2]}}


def test_equal_values_leave_every_byte():
    assert rewritten(TEXT, VALUES) == TEXT


def test_a_changed_key_is_written_anew_and_the_rest_stays():
    found = rewritten(TEXT, {**VALUES, "a": 2})
    assert found == TEXT.replace("a: 1  # inline", "a: 2")


def test_a_changed_group_loses_only_the_comments_inside_it():
    found = rewritten(TEXT, {**VALUES, "b": {"c": 3, "d": [1, 2]}})
    assert found == "# head\n# about a\na: 1  # inline\n\n# about b\nb:\n  c: 3\n  d: [1, 2]\n# tail\n"


def test_a_new_key_comes_last_and_an_old_one_goes():
    assert rewritten("a: 1\nb: 2", {"b": 2, "c": {"x": 1}}) == "b: 2\nc: {x: 1}\n"


@pytest.mark.parametrize("text", ["{a: 1, b: 2}", "- 1", "", "a: |\n  one\n  # text, no comment\n"])
def test_another_layout_is_not_touched(text):
    values = {"a": 5, "b": 2}
    assert rewritten(text, values) in (None, "a: 5\nb: 2\n")


TEMPLATE = """epochs: 20       # enough
optimizer:
  name: adamw    # a name
  lr: 1.0e-3     # a rate
  betas: [0.9, 0.99]  # both
clip: {norm: 1.0}  # (Pascanu)
"""


def test_a_word_takes_anothers_place_and_the_comments_stay():
    adam = {"name": "adamw", "lr": 0.25, "betas": [0.9, 0.99]}
    found = edited(TEMPLATE, {"epochs": 1000, "optimizer": adam, "clip": {"norm": 2.5}})
    assert found == TEMPLATE.replace("20       #", "1000       #").replace("1.0e-3     #", "0.25       #").replace("1.0}", "2.5}")


def test_what_is_no_word_is_written_anew():
    values = {"epochs": 20, "optimizer": {"name": "sgd", "lr": 1.0e-3}, "clip": None}
    assert edited(TEMPLATE, values) == "epochs: 20       # enough\noptimizer: {name: sgd, lr: 0.001}\nclip: null\n"
