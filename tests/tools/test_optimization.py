"""Optimizers take what is trainable, and gradients are clipped to the limit and no further."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from mltrainer.configs.optimizers import AdamW, Optimizer, Sgd
from mltrainer.tools.training_orchestrator.optimization import KINDS, build_optimizer, clip, gradient_norms, parameter_groups
from tests.tools.digits_runs import make, same, train


def optimizer(name: str, **options: object) -> Optimizer:
    found: Optimizer = TypeAdapter(Optimizer).validate_python({"name": name, **options})
    return found


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 1))


@pytest.mark.parametrize("name", KINDS)
def test_optimizers_learn_only_what_is_trainable(name: str) -> None:
    model = two_layers()
    model[0].requires_grad_(False)
    built = build_optimizer(optimizer(name), model)
    assert isinstance(built, KINDS[name][0])
    assert sum(p.numel() for group in built.param_groups for p in group["params"]) == 7


def test_the_defaults_are_those_of_the_field() -> None:
    assert (Sgd().lr, Sgd().momentum, Sgd().weight_decay) == (0.1, 0.9, 1e-4)
    assert (AdamW().lr, AdamW().betas, AdamW().weight_decay) == (1e-3, [0.9, 0.999], 0.01)


def test_norms_and_biases_may_be_spared_from_decay() -> None:
    groups = parameter_groups(optimizer("adamw", decay_norms_and_biases=False), two_layers())
    assert groups == [
        {"lr": 1.0, "weight_decay": 0.01, "parameters": ["0.weight", "2.weight"]},
        {"lr": 1.0, "weight_decay": 0.0, "parameters": ["0.bias", "1.weight", "1.bias", "2.bias"]},
    ]


def test_of_several_groups_the_first_that_matches_counts() -> None:
    groups = [{"match": "^2", "lr": 0.1, "weight_decay": 0.5}, {"match": "bias$", "lr": 0.0}]
    found = parameter_groups(optimizer("sgd", groups=groups), two_layers())
    assert {(group["lr"], group["weight_decay"]): group["parameters"] for group in found} == {
        (1.0, 1e-4): ["0.weight", "1.weight"],
        (0.0, 1e-4): ["0.bias", "1.bias"],
        (0.1, 0.5): ["2.weight", "2.bias"],
    }


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="is not a regular expression"):
        optimizer("sgd", groups=[{"match": "("}])


@pytest.mark.parametrize("name", KINDS)
def test_every_optimizer_repeats_and_resumes_in_mid_epoch(tmp_path: Path, name: str) -> None:
    chosen = {"optimizer": {"name": name, "lr": 0.01, "groups": [{"match": "bias", "lr": 0.5}]}, "epochs": 2}
    whole = train(make(tmp_path / "whole"), **chosen)
    assert same(train(make(tmp_path / "halves"), (8,), **chosen), whole)


def test_a_schedule_that_waits_for_a_plateau_resumes_too(tmp_path: Path) -> None:
    chosen = {"schedule": {"name": "plateau", "patience": 1}, "evaluate": {"every_n_steps": 2}, "early_stopping": None}
    whole = train(make(tmp_path / "whole"), **chosen)
    assert min(row["lr"] for row in whole["history"]) < 0.01
    assert same(train(make(tmp_path / "halves"), (11,), **chosen), whole)


def test_clipping_scales_to_the_limit_and_leaves_small_gradients_alone() -> None:
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])]
    _, total = gradient_norms(gradients)
    clip(gradients, total, 10.0)
    assert gradients[1].item() == 4.0
    clip(gradients, total, 1.0)
    assert gradient_norms(gradients)[1].item() == pytest.approx(1.0, abs=1e-5)


def test_norms_are_those_of_each_parameter_and_of_all() -> None:
    norms, total = gradient_norms([torch.tensor([3.0, 4.0]), torch.tensor([12.0])])
    assert norms.tolist() == [5.0, 12.0]
    assert total.item() == 13.0
