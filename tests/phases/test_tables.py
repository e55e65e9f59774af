"""Tables from their file to a delivered model: no question or one, every gate, and predictions of what was trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.workspace import read_json
from tests.benchmarks.bench_traps import walk

pytestmark = [pytest.mark.usefixtures("tools_here"), pytest.mark.slow]


@pytest.mark.parametrize("name", ["german", "wrong"])
def test_a_table_is_walked_to_its_end_with_what_init_wrote_and_one_answer_at_most(tmp_path: Path, name: str) -> None:
    found = walk(name, tmp_path, epochs=10)
    assert found.is_fine, "\n".join([found.told, *found.stops, found.said])
    record = read_json(tmp_path / name / "project/phases/05_finalization/record.json")["evidence"]
    assert {one["format"] for one in record["exports"] if one["agrees"]} == {"safetensors", "onnx", "torch_export", "torchscript"}
    assert record["reproduction"]["identical"]
