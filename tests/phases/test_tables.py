"""A table from its file to a delivered model: columns as vectors, members of an ensemble, and every gate."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mltrainer.workspace import read_json
from tests.conftest import Cli, commit

pytestmark = [pytest.mark.usefixtures("tools_here"), pytest.mark.slow]


def write_table(path: Path) -> None:
    """Write 200 rows whose class follows a number with gaps and a category."""
    draw = random.Random(1)
    rows = [(draw.gauss(0, 1), draw.choice("abc")) for _ in range(200)]
    cells = [
        f"{'' if n % 9 == 0 else round(x, 4)},{kind},{'yes' if x + (kind == 'a') > 0 else 'no'}"
        for n, (x, kind) in enumerate(rows)
    ]
    path.write_text("\n".join(["size,kind,sold", *cells]) + "\n")


def test_a_table_is_walked_to_its_end_with_what_init_wrote(tmp_path: Path, cli: Cli) -> None:
    write_table(tmp_path / "table.csv")
    assert cli("init", tmp_path, "--data", tmp_path / "table.csv", "--target", "sold").code == 0
    project = tmp_path / "mltrainer.yaml"
    project.write_text(project.read_text() + 'acceptance: {accuracy: ">= 0.7"}\n')
    commit(tmp_path)
    said = cli("run", "--project", tmp_path)
    assert said.code == 0, said.out + said.err
    record = read_json(tmp_path / "phases/05_finalization/record.json")["evidence"]
    assert {one["format"] for one in record["exports"] if one["agrees"]} == {"safetensors", "onnx", "torch_export", "torchscript"}
    assert record["reproduction"]["identical"]
