"""A finished run is taken for what its contract names only while everything that it wrote is what it wrote."""

from __future__ import annotations

from typing import Any

from mltrainer.runs.contract import RESULT_FILE, existing_result
from mltrainer.workspace import Project, read_json
from tests.projects import evidence_of

CONTRACT = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256")


def baseline(project: Project) -> dict[str, Any]:
    run = evidence_of(project, "baseline")["run"]["id"]
    return dict(read_json(project.runs_dir / run / RESULT_FILE))


def test_a_run_one_of_whose_checkpoints_was_changed_is_not_taken_again(digits):
    result = baseline(digits)
    contract = {key: result[key] for key in CONTRACT}
    assert (known := existing_result(digits, result["id"], contract)) is not None
    assert known.written() == result
    rows = [row for checkpoint in result["checkpoints"] for row in checkpoint["files"]]
    path = digits.root / next(row["path"] for row in rows if row["path"].endswith(".safetensors"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert existing_result(digits, result["id"], contract) is None
