"""A table from its file to a delivered model: one question and its answer, every gate, predictions of the rows it was made of."""

from __future__ import annotations

import pytest

from mltrainer.workspace import read_json
from tests.benchmarks.bench_traps import walk

pytestmark = [pytest.mark.usefixtures("tools_here"), pytest.mark.slow]


@pytest.mark.long
def test_a_table_with_wrong_cells_is_walked_to_its_end_with_what_init_wrote_and_one_answer(tmp_path):
    """`make bench-traps` walks many more."""
    found = walk("wrong", tmp_path, epochs=10)
    assert found.is_fine, "\n".join([found.told, *found.stops, found.said])
    record = read_json(tmp_path / "wrong/project/phases/05_finalization/record.json")["evidence"]
    assert {one["format"] for one in record["exports"] if one["agrees"]} == {"safetensors", "onnx", "torch_export", "torchscript"}
    assert record["reproduction"]["identical"]
