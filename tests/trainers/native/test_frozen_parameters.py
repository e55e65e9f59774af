"""Held parameters: what is held does not change at all, and a run that goes on holds what it should."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from mltrainer.checkpointing.format import load
from mltrainer.configs.starting import Start
from mltrainer.errors import InputError
from mltrainer.trainers.native.frozen_parameters import Held
from tests.trainers.native.digits_runs import same, train

FROZEN = {"freeze": ["^conv1", "^norm1", "^conv2", "^norm2"], "unfreeze": [{"epoch": 2, "match": "^(conv|norm)2"}]}
OPTIMIZERS: list[dict[str, Any]] = [
    {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
    {"name": "sgd", "lr": 0.1, "weight_decay": 0.1},
    {"name": "schedule_free", "lr": 0.01},
    {"name": "adamw", "lr": 0.01, "sam": {"rho": 0.05}},
    {"name": "adamw", "lr": 0.01, "lookahead": {"k": 2}},
]


@pytest.fixture
def project(tmp_path: Path) -> dict[str, Any]:
    """A config of a small image classification that begins with the weights of an earlier training, beside its data."""
    y = np.arange(60) % 3
    x = np.random.default_rng(0).integers(0, 200, (60, 8, 8), dtype=np.uint8)
    x[np.arange(60), y * 2] += 50
    np.savez(tmp_path / "x.npz", x=x, y=y)
    first = {
        "task": {"kind": "image_classification"},
        "data": {"source": str(tmp_path / "x.npz")},
        "model": {"name": "cnn", "channels": [3, 4]},
        "epochs": 2,
        "early_stopping": None,
    }
    (tmp_path / "first").mkdir()
    train(tmp_path / "first", **first)
    safetensors.torch.save_file(last(tmp_path / "first"), tmp_path / "w.safetensors")
    return {**first, "epochs": 3, "start": {"weights": str(tmp_path / "w.safetensors"), "replace_head": True, **FROZEN}}


def last(root: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    """Return the trained weights of a run's last checkpoint, or of that of a step."""
    folders = sorted((root / ".mltrainer/runs/run/checkpoints").glob("step-*"))
    folder = next(f for f in folders if step is None or int(f.name[5:]) == step) if step else folders[-1]
    return {name: tensor.contiguous() for name, tensor in load(folder, None)[0]["model"].items()}


def run(root: Path, stops: tuple[int, ...] = (), **config: Any) -> dict[str, Any]:
    root.mkdir(exist_ok=True)
    return train(root, stops, **config)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_what_is_held_keeps_its_bits_until_its_epoch(tmp_path, project, optimizer):
    begun = safetensors.torch.load_file(tmp_path / "w.safetensors")
    result = run(tmp_path / "run", optimizer=optimizer, checkpoint={"every_n_epochs": 1, "keep": 9}, **project)
    steps = result["planned_steps"] // 3
    first, end = last(tmp_path / "run", steps), last(tmp_path / "run")
    held = [name for name in begun if name.startswith(("conv", "norm"))]
    assert all(torch.equal(first[name], begun[name]) for name in held)
    changed = {name for name in held if not torch.equal(end[name], begun[name])}
    assert changed == {name for name in held if name[4] == "2"}
    assert not torch.equal(first["output.weight"], begun["output.weight"])


@pytest.mark.slow
def test_a_run_with_held_parameters_goes_on_with_equal_bits(tmp_path, project):
    whole = run(tmp_path / "whole", **project)
    steps = whole["planned_steps"] // 3
    for stop in (steps - 1, steps, steps + 1):
        assert same(run(tmp_path / str(stop), (stop,), **project), whole)


@pytest.mark.slow
def test_other_weights_are_another_run_of_other_data(tmp_path, project):
    before = run(tmp_path / "before", **project)
    state = safetensors.torch.load_file(tmp_path / "w.safetensors")
    safetensors.torch.save_file({**state, "conv1.weight": state["conv1.weight"] * 2}, tmp_path / "w.safetensors")
    after = run(tmp_path / "after", **project)
    assert after["data_sha256"] != before["data_sha256"]
    assert after["weights_sha256"] != before["weights_sha256"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"freeze": ["nothing"]}, r"no parameter's name matches 'nothing'"),
        ({"freeze": ["."]}, "all parameters are frozen"),
        ({"freeze": ["^0"], "unfreeze": [{"epoch": 2, "match": "^1"}]}, "no held parameter's name matches '\\^1'"),
        (
            {"freeze": ["."], "unfreeze": [{"epoch": 3, "match": "^0"}, {"epoch": 2, "match": "^1"}]},
            "all parameters are frozen before epoch 2",
        ),
    ],
)
def test_patterns_that_hold_nothing_or_all_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Held(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), Start.model_validate({"weights": "w", **changes}))


def test_without_a_start_nothing_is_held():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    Held(model, None).enter(1)
    assert all(p.requires_grad for p in model.parameters())
    assert model[1].training
