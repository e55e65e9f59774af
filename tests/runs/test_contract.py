"""A finished run is taken for what its contract names only while everything that it wrote is what it wrote."""

from __future__ import annotations

from typing import Any

import pytest

from mltrainer.configs.items import GradeSettings
from mltrainer.reproducibility.grades import Numbers
from mltrainer.runs.contract import RESULT_FILE, existing_result
from mltrainer.runs.retrain import reproduction_row
from mltrainer.workspace import Project, read_json

CONTRACT = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256")


def baseline(project: Project) -> dict[str, Any]:
    run = read_json(project.phase_dir("baseline") / "record.json")["evidence"]["run"]["id"]
    return dict(read_json(project.runs_dir / run / RESULT_FILE))


def test_a_run_one_of_whose_checkpoints_was_changed_is_not_taken_again(digits: Project) -> None:
    result = baseline(digits)
    contract = {key: result[key] for key in CONTRACT}
    assert existing_result(digits, result["id"], contract) == result
    rows = [row for checkpoint in result["checkpoints"] for row in checkpoint["files"]]
    path = digits.root / next(row["path"] for row in rows if row["path"].endswith(".safetensors"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert existing_result(digits, result["id"], contract) is None


@pytest.mark.parametrize("change", [{"weights_sha256": "other"}, {"metrics": {"accuracy": 0.8}}, {"data_sha256": "other"}])
def test_equal_steps_with_another_end_are_no_reproduction(change: dict[str, Any]) -> None:
    result = {
        "id": "a",
        "weights_sha256": "w",
        "metrics": {"accuracy": 0.9},
        "data_sha256": "d",
        "stop_reason": "epochs",
        "steps": 3,
        "chain": {"entries": 3, "head": "h"},
        "wall_s": 1.0,
        "first_divergence": None,
    }
    numbers = Numbers(0.0, 0.0)
    assert reproduction_row(result, result, numbers, GradeSettings())["identical"] is True
    assert reproduction_row(result, {**result, **change}, numbers, GradeSettings())["identical"] is False
