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


ENDED: dict[str, Any] = {
    "id": "a",
    "weights_sha256": "w",
    "metrics": {"accuracy": 0.9},
    "data_sha256": "d",
    "stop_reason": "epochs",
    "steps": 30,
    "chain": {"entries": 30, "head": "h"},
    "wall_s": 1.0,
    "first_divergence": None,
}


def left(**outputs: str) -> dict[str, Any]:
    """A program's result that left files with these digests."""
    rows = [{"path": f".mltrainer/runs/a/outputs/{name}.pt", "sha256": sha256, "size": 1} for name, sha256 in outputs.items()]
    return {**ENDED, "program": {"outputs": rows}}


@pytest.mark.parametrize(
    ("again", "same", "outputs"),
    [
        (left(model="1", last="2"), True, {"model.pt": True, "last.pt": True}),
        (left(model="0", last="2"), False, {"model.pt": False, "last.pt": True}),
        (left(model="1", last="0"), False, {"model.pt": True, "last.pt": False}),
        (left(model="1"), False, {"model.pt": True, "last.pt": False}),
    ],
)
def test_a_program_is_reproduced_where_each_of_its_files_is_the_same(
    again: dict[str, Any], same: bool, outputs: dict[str, bool]
) -> None:
    row = reproduction_row(left(model="1", last="2"), again, Numbers(0.0, 0.0), GradeSettings())
    assert (row["identical"], row["outputs"]) == (same, outputs)


def test_the_files_of_a_program_that_was_ended_early_are_not_compared() -> None:
    row = reproduction_row(left(model="1"), {**left(), "stop_reason": "max_steps"}, Numbers(0.0, 0.0), GradeSettings())
    assert (row["identical"], "outputs" in row) == (True, False)


@pytest.mark.parametrize(
    ("steps", "divergence", "begun", "compared"),
    [
        (30, None, 0, 30),
        (20, None, 0, 20),  # ended early on purpose
        (40, None, 0, 30),  # only so many there are to compare with
        (30, 7, 0, 7),
        (120, None, 100, 0),
        (25, None, 10, 15),
        (25, 11, 10, 1),
        (25, 10, 10, 0),  # the weights that it began with
    ],
)
def test_steps_that_were_compared_are_counted_from_where_the_run_began(
    steps: int, divergence: int | None, begun: int, compared: int
) -> None:
    found = None if divergence is None else {"step": divergence, "what": "loss", "expected": "1", "found": "2"}
    original = {**ENDED, "steps": 100 if begun == 100 else 30}
    again = {**ENDED, "steps": steps, "stop_reason": "max_steps", "first_divergence": found}
    row = reproduction_row(original, again, Numbers(0.0, 0.0), GradeSettings(), begun)
    assert row["steps_compared"] == compared
