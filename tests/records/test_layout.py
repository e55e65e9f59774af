"""A record's text: one row of a list on one line, the same bytes for equal records."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from mltrainer.records.layout import LONGEST, record_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_the_text_holds_the_value_and_its_order_does_not_matter(value):
    text = record_json(value)
    assert json.loads(text) == value
    assert record_json(json.loads(json.dumps(value, sort_keys=True))) == text


def test_a_row_of_a_history_stands_on_one_line():
    rows = [{"epoch": nr, "train": {"loss": 0.5, "accuracy": nr / 3}, "layer_norms": [0.1] * 5} for nr in range(7)]
    lines = record_json({"evidence": {"history": rows}}).decode().splitlines()
    assert sum('"epoch"' in line for line in lines) == len(rows) == len(lines) - 6


def test_a_long_row_is_spread_over_lines():
    lines = record_json({"rows": [{"what": "x" * LONGEST, "why": ["a", "b"]}]}).decode().splitlines()
    assert '   "why": ["a", "b"]' in lines
