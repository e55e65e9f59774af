"""Options that trade time for memory: the same bits where they promise them, and the same bits on repeat and resume always."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.trainers.native import preparing
from mltrainer.trainers.native.preparing import modules_to_recompute, prepare_model
from mltrainer.trainers.native.stages import Rewind, Trainer
from tests.trainers.native.digits_runs import CONFIG, make, same, train

CNN = {"use": "digits_task:Digits", "options": {"model": "cnn"}}


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({**CONFIG, **changes})


def names(model: nn.Module, *patterns: str) -> list[str]:
    chosen = modules_to_recompute(model, list(patterns))
    return [name for name, module in model.named_modules() if module in chosen]


# --- gradient checkpointing -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn", "transformer"])
def test_recomputing_activations_does_not_change_a_bit(tmp_path, model):
    task = {"use": "digits_task:Digits", "options": {"model": model}}
    pattern = "^encoder" if model == "transformer" else "."
    plain = train(make(tmp_path / "plain"), task=task, epochs=2)
    assert same(train(make(tmp_path / "again"), task=task, epochs=2, gradient_checkpointing=[pattern]), plain)


class Draws(nn.Module):
    """Statistics of its own, and draws from three generators."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen += 1
        x = self.norm(self.linear(x)).tanh() * (random.random() + np.random.rand()) * self.seen
        return nn.functional.dropout(x, 0.5, self.training).exp()


def test_the_second_computation_draws_and_reads_what_the_first_one_did():
    found = []
    for patterns in ([], ["0"]):
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        model = nn.Sequential(Draws(), nn.Linear(4, 1))
        prepare_model(model, config(gradient_checkpointing=patterns))
        for _ in range(2):
            model(torch.randn(8, 4)).sum().backward()
        draws = (random.random(), np.random.rand(), torch.rand(()).item())
        found.append(([*model.state_dict().values(), *(p.grad for p in model.parameters())], draws, model[0].calls))
    (plain, draws, calls), (again, draws_again, calls_again) = found
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert (draws, calls, calls_again) == (draws_again, 2, 4)


def test_patterns_choose_the_outermost_modules_that_are_called():
    model = nn.ModuleDict({"layers": nn.ModuleList([nn.Sequential(nn.Linear(2, 2)), nn.ReLU()]), "head": nn.Linear(2, 2)})
    assert names(model, "layers") == ["layers.0", "layers.1"]
    assert names(model, "^head$", r"\.0") == ["layers.0", "head"]
    assert names(model) == []


def test_a_pattern_that_matches_nothing_is_refused_with_the_names_there_are():
    with pytest.raises(InputError, match=r"no module's name matches 'encoder'; the names are: 0, 1\n"):
        modules_to_recompute(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), ["0", "encoder"])


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ValueError, match="is not a regular expression"):
        config(gradient_checkpointing=["("])


# --- channels last --------------------------------------------------------------------------------


@pytest.mark.slow
def test_channels_last_repeats_and_resumes_in_the_same_bits(tmp_path, monkeypatch):
    layouts = []
    rewind = Trainer.rewind

    def watched(trainer: Trainer, tree: dict[str, Any], reason: Rewind) -> None:
        rewind(trainer, tree, reason)
        optimizer = trainer.stepper.optimizer
        layouts.extend(
            (p.stride(), state["exp_avg"].stride(), p.is_contiguous()) for p, state in optimizer.state.items() if p.dim() == 4
        )

    monkeypatch.setattr(Trainer, "rewind", watched)
    options = {"task": {**CNN, "options": {"model": "colour"}}, "epochs": 2, "channels_last": True}
    whole = train(make(tmp_path / "whole"), **options)
    assert same(train(make(tmp_path / "again"), **options), whole)
    assert same(train(make(tmp_path / "halves"), (7,), **options), whole)
    assert all(parameter == moment for parameter, moment, _ in layouts)
    assert not all(in_c_order for _, _, in_c_order in layouts)


# --- compiling ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.long
def test_a_compiled_model_repeats_and_resumes_in_the_same_bits(tmp_path, monkeypatch):
    found = []
    for name, stops in (("whole", ()), ("halves", (3,))):  # the second half finds what the first one compiled
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / f"cache-{name}"))
        found.append(train(make(tmp_path / name), stops, epochs=1, compile=True))
    assert same(found[1], found[0])
    assert not same(train(make(tmp_path / "plain"), epochs=1), found[0])  # dropout draws otherwise: it was compiled
    assert "C++ compiler" in found[0]["libraries"]


def test_compiling_without_a_compiler_is_refused():
    no_compiler = torch._inductor.config.patch({"cpp.cxx": (None, "/nowhere/g++")})
    with no_compiler, pytest.raises(InputError, match=r"needs a C\+\+ compiler") as caught:
        prepare_model(nn.Linear(1, 1), config(compile=True))
    assert "compile=false" in str(caught.value.hint)


def test_more_shapes_than_are_compiled_are_refused(monkeypatch):
    model = nn.Sequential(nn.Linear(1, 1))
    monkeypatch.setattr(torch, "compile", lambda forward, dynamic: torch._dynamo.optimize("eager", dynamic=dynamic)(forward))
    monkeypatch.setattr(preparing, "COMPILED_SHAPES", 2)
    prepare_model(model, config(compile=True))
    for samples in (1, 2, 1):
        model(torch.zeros(samples, 1))
    with pytest.raises(InputError, match="more than 2 shapes"):
        model(torch.zeros(3, 1))
