"""A run that no phase started is never evidence: not found, not gone on with, and refused in a record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltrainer.gates.gate import check_gates
from mltrainer.reproducibility.evidence import has_ended, sound_result
from mltrainer.workspace import pretty_json, read_json, seal, write_json
from tests.trainers.native.digits_runs import job, make, train


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was trained by a call in Python."""
    root = make(tmp_path_factory.mktemp("by_hand"))
    train(root, epochs=1)
    return root / ".mltrainer/runs/run"


def test_a_training_called_in_python_is_marked_and_found_by_no_phase(by_hand):
    contract, path = job({"epochs": 1})["contract"], by_hand / "result.json"
    result = read_json(path)
    assert result["purpose"] == "explore"
    assert sound_result(by_hand, contract) is None
    write_json(path, seal({**result, "purpose": "train"}))
    assert sound_result(by_hand, contract) is not None
    write_json(path, result)


@pytest.mark.parametrize("state", ["finished", "interrupted"])
def test_it_is_not_gone_on_with(by_hand, tmp_path, state):
    result = read_json(by_hand / "result.json")
    write_json(tmp_path / "result.json", {**result, "state": state})
    assert has_ended(tmp_path)


@pytest.mark.slow
def test_a_record_of_it_holds_no_gate(digits):
    path = digits.root / "phases/05_finalization/record.json"
    record = json.loads(path.read_bytes())
    record["evidence"]["run"]["purpose"] = "explore"
    path.write_bytes(pretty_json(seal(record)))
    assert "was not started by a phase, so it is no evidence" in "".join(check_gates(digits)[-1].stale)
