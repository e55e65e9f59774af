"""YAML as people mean it, and refusals that name the line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltrainer.configs import yaml
from mltrainer.errors import InputError
from tests.refusals import refused


def value_of(text: str) -> Any:
    return yaml.parse(text, "t.yaml").value


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1e-3", 0.001),
        ("1.0e-3", 0.001),
        ("-2E+4", -20000.0),
        (".5", 0.5),
        ("012", 12),
        ("on", "on"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("null", None),
        ("~", None),
        ("'1e-3'", "1e-3"),
        ("0x10", "0x10"),
    ],
)
def test_a_scalar_is_read_as_people_mean_it(text, meant):
    read = value_of(f"key: {text}")["key"]
    assert read == meant
    assert type(read) is type(meant)


def test_infinity_and_nan_are_numbers():
    values = value_of("[.inf, -.inf, .nan]")
    assert values[0] == float("inf")
    assert values[1] == -float("inf")
    assert values[2] != values[2]


def test_an_empty_file_holds_nothing():
    assert value_of("# only a comment\n") is None


def test_a_duplicate_key_is_refused_with_both_lines():
    with refused(where="t.yaml:4") as caught:
        value_of("a:\n  lr: 1\n  batch: 2\n  lr: 3\n")
    assert "'lr'" in caught.value.message
    assert "line 2" in caught.value.message


TAGS = [
    *("!!python/object/apply:os.system [true]", "!mine 1", "!!binary aGk=", "!!set {b}", "!!int three", "!!bool perhaps"),
    *("!!null 3", "!!str 3", "!!int '3'"),
]
REFUSED = {
    "alias": ["a: &x 1\nb: *x\n", "a: &x {b: 1}\nc:\n  <<: *x\n"],
    "tag": [f"a: {tag}" for tag in TAGS],
    "nested": ["[" * 3000, "{a: " * 100 + "1", "\n".join(" " * 5 * i + "a:" for i in range(50))],
    "at most 1000000": ["a: " + "x" * 1_000_001],
    "plain text": ["[1, 2]: 3"],
}


@pytest.mark.parametrize(("said", "text"), [(said, text) for said, texts in REFUSED.items() for text in texts])
def test_what_is_no_plain_data_is_refused(said, text):
    with pytest.raises(InputError, match=said):
        value_of(text)


def test_a_whole_number_with_too_many_digits_is_refused():
    with refused("digits", where="t.yaml:2"):
        value_of("a: 1\nb: " + "9" * 5000)


@pytest.mark.parametrize("text", ["a: [1, 2", "a:\n\t- 1", "a: 1\n---\nb: 2", "a: 'open"])
def test_broken_yaml_is_refused_with_its_line(text):
    with pytest.raises(InputError, match="not valid YAML") as caught:
        value_of(text)
    assert str(caught.value.where).startswith("t.yaml:")


def test_text_that_is_not_utf8_is_refused_with_the_byte():
    with pytest.raises(InputError, match="byte 3"):
        yaml.parse(b"a: \xff", "t.yaml")


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert yaml.parse(b"\xef\xbb\xbfname: x", "t.yaml").value == {"name": "x"}


def test_the_line_of_every_key_is_known():
    document = yaml.parse("a: 1\nb:\n  - x\n  - c: 2\n", "t.yaml", first_line=10)
    assert document.where(("a",)) == "t.yaml:10, key a"
    assert document.where(("b", 1, "c")) == "t.yaml:13, key b.1.c"


def test_an_unknown_path_gets_the_line_of_its_nearest_parent():
    assert yaml.parse("a: 1\nb: {c: 2}\n", "t.yaml").where(("b", "d", "e")) == "t.yaml:2, key b.d.e"


CONFUSABLE = st.text("abeonytrus019.:-+~ #'\"")
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abeonytrus019.:-+~ #'\""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_dumped_is_read_back_the_same(value):
    assert value_of(yaml.dump({"value": value})) == {"value": value}


def test_numbers_and_words_keep_their_type_through_a_dump():
    value = {"lr": 0.001, "tiny": 1e-8, "on": "on", "digits": "012", "number": "1e-3"}
    assert value_of(yaml.dump(value)) == value


def test_a_short_mapping_is_written_as_a_block_at_the_top_and_on_one_line_below():
    assert yaml.dump({"epochs": 20}) == "epochs: 20\n"
    assert yaml.dump({"clip": {"norm": 1.0}}) == "clip: {norm: 1.0}\n"
    assert yaml.dump({}) == "{}\n"
