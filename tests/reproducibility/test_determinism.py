"""The switches of fp32 arithmetic: all are set before user code, and whatever it sets is told, not raised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from mltrainer.reproducibility import determinism
from tests.trainers.native.digits_runs import make, train

LINES = {
    "torch.backends.fp32_precision = 'tf32'": ("all", "tf32"),
    "torch.backends.cudnn.fp32_precision = 'tf32'": ("cudnn", "tf32"),
    "torch.backends.cudnn.conv.fp32_precision = 'tf32'": ("cudnn.conv", "tf32"),
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": ("cuda.matmul", "tf32"),
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'": ("mkldnn.matmul", "bf16"),
    "torch.backends.cudnn.allow_tf32 = True": ("cudnn.rnn", "tf32"),
    "torch.set_float32_matmul_precision('medium')": ("mkldnn.matmul", "bf16"),
}


@pytest.fixture(autouse=True)
def switches() -> Iterator[None]:
    """Give torch its switches back."""
    with determinism.kept():
        yield
    torch.backends.fp32_precision = "none"


def test_every_operation_is_computed_in_full_and_the_older_switches_can_still_be_read():
    determinism.switch_on(1)
    found = determinism.read_back("cpu")
    assert {*found["fp32_precision"].values()} <= {"ieee", "none"}
    assert all(found["fp32_precision"][name] == "ieee" for name in determinism.OPERATIONS)
    assert (found["tf32"], found["matmul_precision"]) == (False, "highest")
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("line", LINES)
def test_what_user_code_sets_is_told(line):
    determinism.switch_on(1)
    exec(line, {"torch": torch})
    found, (name, value) = determinism.read_back("cpu"), LINES[line]
    assert found["tf32"] is True
    assert found["fp32_precision"][name] == value


def test_a_setting_for_everything_does_not_reach_an_operation_that_was_set():
    determinism.switch_on(1)
    torch.backends.fp32_precision = "tf32"
    assert {determinism.fp32_precisions()[name] for name in determinism.OPERATIONS} == {"ieee"}


@pytest.mark.slow
def test_a_run_whose_module_sets_it_ends_and_records_what_the_gate_refuses(tmp_path):
    module = make(tmp_path) / "digits_task.py"
    module.write_text(module.read_text() + "\ntorch.backends.cuda.matmul.fp32_precision = 'tf32'\n")
    result = train(tmp_path, epochs=1)
    assert result["state"] == "finished"
    assert result["determinism"]["tf32"] is True
    assert result["determinism"]["matmul_precision"] == "mixed"


def test_a_process_that_goes_on_with_other_work_has_its_switches_back():
    torch.backends.cudnn.allow_tf32 = True
    before = determinism.read_back("cpu")
    with determinism.kept():
        determinism.switch_on(1)
    assert determinism.read_back("cpu") == before
    assert torch.backends.cudnn.allow_tf32
