"""JSON lines: what polars reads is what the careful reader reads, or the careful reader reads it."""

import json

import numpy as np
import polars
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mltrainer.checkpointing import inference_script
from mltrainer.errors import InputError
from mltrainer.tasks.content import content_sha256
from mltrainer.tasks.tables import files
from mltrainer.tasks.tables.polars_jsonl import cells_of

NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e6, 1e6).map(lambda x: round(x, 2)),
)
TEXTS = st.one_of(
    st.text(max_size=6), st.sampled_from(["null", "1.50", 'a "b"', "x, y", '","a":"', "line\nend", "\u2028", "1e-5"])
)
VALUES = st.one_of(NUMBERS, TEXTS, st.booleans(), st.none())
RAW = st.sampled_from(
    ["1.50", "1E5", "-0", "-0.0", "0.00001", "0.0001", "100000000000000000.5", "123456789012345678901", "1e400"]
)
SLOW = 1 << 60


def both(data):
    quick = cells_of(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FAST_FROM", SLOW)
        return quick, files.read_jsonl(data, "d.jsonl")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(VALUES.map(json.dumps), RAW), VALUES), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from("\n\r"),
)
@example([("0.00001", "é"), ("1e-7", None)], False, "\n")
def test_the_fast_reader_reads_what_the_careful_one_reads(rows, ascii_only, end):
    end = "\r\n" if end == "\r" else end
    data = "".join(f'{{"a b": {a}, "c":{json.dumps(b, ensure_ascii=ascii_only)}}}{end}' for a, b in rows).encode(
        "utf-8", "surrogatepass"
    )
    quick, slow = both(data)
    if quick is None:
        return
    assert {name: cells.to_list() for name, cells in quick.items()} == {n: c.tolist() for n, c in slow.columns.items()}


LEFT = {
    "other keys": '{"a":1}\n{"b":1}\n',
    "another order": '{"a":1,"b":2}\n{"b":1,"a":2}\n',
    "a missing key": '{"a":1,"b":2}\n{"a":1}\n',
    "a key twice": '{"a":1,"a":2}\n',
    "a list": '{"a":[1]}\n',
    "no object": "[1]\n",
    "not JSON": '{"a":1}\n{"a":01}\n',
    "NaN": '{"a":NaN}\n',
    "text behind": '{"a":1} x\n',
    "a blank line": '{"a":1}\n\n{"a":2}\n',
}


@pytest.mark.parametrize("form", LEFT)
def test_a_form_that_leaves_a_question_is_left_to_the_careful_reader(form):
    assert cells_of(LEFT[form].encode()) is None


def test_common_lines_are_read_fast_with_the_same_digest(monkeypatch):
    rows = [{"n": i / 7, "m": i, "t": "é" if i % 2 else None, "b": i % 3 == 0} for i in range(50)]
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    _, slow = both(data)
    monkeypatch.setattr(files, "FAST_FROM", 0)
    quick = files.read_jsonl(b"\xef\xbb\xbf" + data, "d.jsonl")
    assert isinstance(quick.columns["n"], polars.Series)
    assert content_sha256(quick) == content_sha256(slow)
    assert np.array_equal(quick.rows, np.arange(1, 51))


def test_a_fault_in_a_large_file_is_told_by_line(monkeypatch):
    monkeypatch.setattr(files, "FAST_FROM", 0)
    with pytest.raises(InputError, match=r"d\.jsonl:2: not readable as JSON"):
        files.read_jsonl(b'{"a": 1}\n{"a": }\n', "d.jsonl")


def test_a_line_separator_inside_a_text_ends_no_line():
    table = files.read_jsonl('{"a": "x\u2028y"}\n{"a": "z\x85"}\n'.encode(), "d.jsonl")
    assert table.columns["a"][0] == "x\u2028y"
    assert table.rows.tolist() == [1, 2]


@pytest.mark.parametrize("read", [inference_script.read_rows, inference_script.read_raw])
def test_the_delivered_model_reads_the_lines_of_training(tmp_path, read):
    (tmp_path / "ask.jsonl").write_bytes('{"a": "x\u2028y"}\r\n\n{"a": "z\x85z"}\n'.encode())
    assert read(tmp_path / "ask.jsonl") == [{"a": "x\u2028y"}, {"a": "z\x85z"}]
