"""JSON lines: a fault is reported by its line, and only a line's end parts lines."""

import pytest

from mltrainer.errors import InputError
from mltrainer.tasks.tables import files


def test_a_fault_is_reported_by_its_line():
    with pytest.raises(InputError, match=r"d\.jsonl:2: not readable as JSON"):
        files.read_jsonl(b'{"a": 1}\n{"a": }\n', "d.jsonl")


def test_a_line_separator_inside_a_text_ends_no_line():
    table = files.read_jsonl('{"a": "x\u2028y"}\n{"a": "z\x85"}\n'.encode(), "d.jsonl")
    assert table.columns["a"][0] == "x\u2028y"
    assert table.rows.tolist() == [1, 2]
