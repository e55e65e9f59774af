"""The trace: the trainer's own step on fake tensors, against the same counted by hand and on real ones."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from mltrainer.companions.planner import memory, trace
from mltrainer.configs.project import TrainingConfig
from mltrainer.records.job import ExplorationJob
from mltrainer.records.planner import Traced, Variant
from mltrainer.reproducibility import determinism
from mltrainer.tasks.opening import open_task
from mltrainer.tools.program import Events
from tests.projects import PROJECT, TASK, write_rings
from tests.trainers.native.digits_runs import config as digits

WIDE = TASK.replace("nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2)", "{layers}")
BLOCK = "nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))"
BLOCKS = f"nn.Linear(2, 64), nn.Sequential(*({BLOCK} for _ in range(8))), nn.Linear(64, 2)"


@pytest.fixture(autouse=True)
def switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave torch's switches as they are for the other tests of this process."""
    monkeypatch.setattr(determinism, "switch_on", lambda *_args, **_kwargs: None)


def job_of(folder: Path, layers: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> ExplorationJob:
    """Return the job of a trace of a task with a model of some layers."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "my_task", raising=False)
    write_rings(folder, WIDE.replace("{layers}", layers))
    asked = {"variants": [Variant(precision="fp32", recomputed=[]).model_dump()]}
    return ExplorationJob(
        run="plan",
        purpose="explore",
        question="plan",
        folder="scratch",
        config=TrainingConfig.model_validate({**PROJECT, "batch_size": 32, **changes}),
        contract={},
        threads=1,
        settings={},
        asked=asked,
    )


def traced(folder: Path, layers: str, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Traced:
    """Return the trace of a task with a model of some layers."""
    events = Events(None)
    monkeypatch.setattr(events, "send", lambda *_args, **_values: None)
    return trace.traced(job_of(folder, layers, monkeypatch, **changes), folder, events)


@pytest.mark.slow
def test_bytes_are_those_that_are_counted_by_hand(tmp_path, monkeypatch):
    found = traced(tmp_path, "nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)", monkeypatch)
    numbers = 2 * 64 + 64 + 64 * 2 + 2
    assert (found.own.parameters, found.own.parameter_bytes, found.own.trainable_bytes) == (numbers, 4 * numbers, 4 * numbers)
    assert found.own.layer_bytes == 4 * (2 * 64 + 64 * 2)
    assert found.own.optimizer_bytes == 2 * 4 * numbers + 4 * 4  # both moments, and a count of steps for each tensor
    (variant,) = found.variants
    assert [row.batch for row in variant.rows] == [16, 32, 64]
    # Five products of 2 * 64 pairs: two forward, and backward those for both weights and for the inputs of the second layer.
    assert [row.flops for row in variant.rows] == [row.batch * 5 * 2 * 128 for row in variant.rows]
    assert memory.bend(variant.rows) < 0.02
    assert variant.evaluation_bytes > found.own.trainable_bytes  # the last step's gradients, and an evaluation's outputs
    assert all(0 < row.update_operations < row.operations for row in variant.rows)


@pytest.mark.slow
def test_blocks_that_are_computed_again_hold_less_and_compute_more(tmp_path, monkeypatch):
    found = traced(tmp_path, BLOCKS, monkeypatch)
    own, again = found.variants
    assert again.variant.recomputed == found.own.blocks == [r"^1\.\d+$"]
    assert again.rows[-1].step_bytes < own.rows[-1].step_bytes
    assert again.rows[-1].flops > own.rows[-1].flops


@pytest.mark.slow
def test_a_model_that_looks_at_a_number_is_not_known_with_its_reason(tmp_path, monkeypatch):
    looks = "type('Looks', (nn.Module,), {'forward': lambda self, x: x * float(x.mean().item() > 0)})()"
    found = traced(tmp_path, f"nn.Linear(2, 2), {looks}", monkeypatch)
    (variant,) = found.variants
    assert (variant.rows, found.sizes) == ([], None)  # not known, and not 0
    assert "DataDependentOutputException" in str(variant.not_known)


@pytest.mark.slow
def test_a_model_that_is_converted_while_it_is_made_is_traced(tmp_path, monkeypatch):
    found = traced(tmp_path, "nn.Linear(2, 64).to(torch.bfloat16).to(torch.float32), nn.Linear(64, 2)", monkeypatch)
    assert (found.variants[0].not_known, found.own.parameters) == (None, 2 * 64 + 64 + 64 * 2 + 2)


@pytest.mark.slow
def test_adapters_are_traced_beside_what_they_hold(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    strategies = [{"name": "lora", "rank": 4}]
    found = traced(tmp_path, "nn.Linear(2, 64), nn.Linear(64, 2)", monkeypatch, strategies=strategies)
    adapters = 4 * (2 + 64) + 4 * (64 + 2)
    assert (found.variants[0].not_known, found.own.trainable_bytes) == (None, 4 * adapters)
    assert found.own.optimizer_bytes == 2 * 4 * adapters + 4 * 4  # both moments, and a count of steps for each tensor


def test_blocks_are_those_that_a_number_names():
    named = nn.Sequential(OrderedDict(first=nn.Sequential(nn.Linear(2, 2)), second=nn.Sequential(nn.Linear(2, 2))))
    assert trace.repeated_blocks(named) == []
    assert trace.repeated_blocks(nn.Sequential(*named)) == [r"^\d+$"]


@pytest.mark.slow
def test_a_clipped_norm_and_a_large_batch_are_traced_like_others(tmp_path, monkeypatch):
    found = traced(tmp_path, "nn.Linear(2, 2)", monkeypatch, clip={"norm": 1.0}, batch_size=200)
    assert [row.batch for row in found.variants[0].rows] == [100, 200, found.samples]


@pytest.mark.parametrize(
    "changes",
    [
        *({"launch": {"processes": 4, "parallel": parallel}} for parallel in ("ddp", "zero1", "fsdp", "pipeline")),
        {"launch": {"processes": 4, "machines": 2, "life_sign_s": 600.0}},
        {"tensor_parallel": 4},
    ],
    ids=["ddp", "zero1", "fsdp", "pipeline", "machines", "tensor"],
)
def test_the_step_of_one_of_several_processes_is_traced(changes):
    config = digits({"accumulate": 4, "batch_size": 8, **changes})
    found = trace.traceable(config, Variant(precision="fp32", recomputed=[]), 8)
    assert (found.processes, found.accumulate, found.batch_size) == (1, 1, 8)


@pytest.mark.slow
def test_micro_batches_hold_as_many_sums_as_the_arithmetic_says(tmp_path, monkeypatch):
    config = job_of(tmp_path, "nn.Linear(2, 512), nn.Linear(512, 512), nn.Linear(512, 2)", monkeypatch, batch_size=4).config
    opened, held = open_task(config, tmp_path), []
    for count in (1, 2, 4):
        several = trace.traceable(config, Variant(precision="fp32", recomputed=[]), 4).model_copy(update={"accumulate": count})
        sizes, row, _ = trace._one(opened, several, trace._first_step(opened, several))
        held.append(round(row.step_bytes / sizes.trainable_bytes, 1))
    assert held == [1 + memory.held_sums(count) for count in (1, 2, 4)]
