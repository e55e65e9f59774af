"""What the numbers of a reproduction say: how many steps were compared, and whether all that was left is the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.configs.items import GradeSettings
from mltrainer.records.finalization import Reproduction
from mltrainer.records.run import RunResult
from mltrainer.reproducibility.grades import BITWISE, Numbers
from mltrainer.runs import retrain
from tests.results import program, run_result


def reproduction_row(result: RunResult, again: RunResult, begun: int = 0) -> Reproduction:
    return retrain.reproduction_row(result, again, Numbers(0.0, 0.0), GradeSettings(), BITWISE, begun)


def left(**outputs: str) -> RunResult:
    """A program's result that left files with these digests."""
    rows = [{"path": f".mltrainer/runs/a/outputs/{name}.pt", "sha256": sha256, "size": 1} for name, sha256 in outputs.items()]
    return run_result(program=program(*rows))


@pytest.mark.parametrize(
    ("again", "same", "outputs"),
    [
        (left(model="1", last="2"), True, {"model.pt": True, "last.pt": True}),
        (left(model="0", last="2"), False, {"model.pt": False, "last.pt": True}),
        (left(model="1", last="0"), False, {"model.pt": True, "last.pt": False}),
        (left(model="1"), False, {"model.pt": True, "last.pt": False}),
    ],
)
def test_a_program_is_reproduced_where_each_of_its_files_is_the_same(again, same, outputs):
    row = reproduction_row(left(model="1", last="2"), again)
    assert (row.identical, row.outputs) == (same, outputs)


def test_the_files_of_a_program_that_was_ended_early_are_not_compared():
    row = reproduction_row(left(model="1"), run_result(program=program(), stop_reason="max_steps"))
    assert (row.identical, "outputs" in row.written()) == (True, False)


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
def test_steps_that_were_compared_are_counted_from_where_the_run_began(steps, divergence, begun, compared):
    found = None if divergence is None else {"step": divergence, "what": "loss", "expected": "1", "found": "2"}
    original = run_result(steps=100 if begun == 100 else 30)
    again = run_result(steps=steps, stop_reason="max_steps", first_divergence=found)
    row = reproduction_row(original, again, begun)
    assert row.steps_compared == compared


def test_the_row_of_one_that_parts_is_what_a_record_holds_with_the_tensor_that_differs():
    parted = {"step": 7, "what": "loss", "expected": "1", "found": "2", "tensor": "0.weight"}
    again = run_result(steps=7, stop_reason="diverged", first_divergence=parted)
    row = reproduction_row(run_result(), again)
    assert row.written()["first_divergence"] == parted


OTHER_ENDS = (
    {"weights_sha256": "other"},
    {"weights_tree_sha256": "other"},
    {"metrics": {"accuracy": 0.8}},
    {"data_sha256": "other"},
)


@pytest.mark.parametrize("change", OTHER_ENDS)
def test_equal_steps_with_another_end_are_no_reproduction(change):
    assert reproduction_row(run_result(), run_result()).identical is True
    assert reproduction_row(run_result(), run_result(**change)).identical is False


def test_the_row_has_a_digest_over_chunks_where_the_run_has_one():
    assert "weights_tree_sha256" not in reproduction_row(run_result(), run_result()).written()
    both = [run_result(weights_tree_sha256="t")] * 2
    assert (reproduction_row(*both).identical, reproduction_row(*both).weights_tree_sha256) == (True, "t")


def test_a_part_of_a_run_on_other_data_is_no_reproduction():
    part = run_result(steps=20, stop_reason="max_steps", data_sha256="other")
    assert reproduction_row(run_result(), part).identical is False


def test_outputs_are_compared_as_they_were_where_no_step_was_seen():
    def side(sha256: str, left: dict[str, str] | None) -> Any:
        rows = [SimpleNamespace(path="runs/abc/outputs/model.keras", sha256=sha256)]
        return SimpleNamespace(outputs=rows, program=SimpleNamespace(left=left))

    assert retrain._same_outputs(side("a", {"model.keras": "same"}), side("b", {"model.keras": "same"})) == {"model.keras": True}
    assert retrain._same_outputs(side("a", None), side("b", None)) == {"model.keras": False}
