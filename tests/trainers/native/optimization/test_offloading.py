"""Optimizer state on the CPU beside a model on another device, whose part the same CPU's memory plays here."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mltrainer.tools.program import Events
from mltrainer.trainers.native import session
from mltrainer.trainers.native.optimization import offloading
from mltrainer.trainers.native.optimization.offloading import Offloaded
from mltrainer.trainers.native.optimization.optimizers import build_optimizer
from tests.trainers.native.digits_runs import config, make, train

ADAMW = {"name": "adamw", "lr": 0.01, "decay_norms_and_biases": False}
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
SETTING: dict[str, Any] = {"epochs": 2, "batch_size": 32, "clip": {"norm": 1.0}, "early_stopping": None}


@pytest.fixture
def beside_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the model for one on another device."""
    for module in (offloading, session):
        monkeypatch.setattr(module, "is_offloaded", lambda config: config.launch.offload is not None)


class Apart(TorchDispatchMode):
    """Refuses an operation on tensors of both memories, as two devices do; a copy from one to the other is none.

    Args:
        there: What lies in the device's memory.
    """

    def __init__(self, there: list[Tensor]) -> None:
        super().__init__()
        self._there = {tensor.untyped_storage().data_ptr() for tensor in there}

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [one for one in tree_leaves((args, kwargs or {})) if isinstance(one, Tensor)]
        sides = {one.untyped_storage().data_ptr() in self._there for one in tensors}
        if len(sides) > 1 and operation.name() not in ("aten::copy_", "aten::_to_copy"):
            raise RuntimeError(f"{operation.name()} of tensors in two memories")
        return operation(*args, **(kwargs or {}))


def given(model: nn.Module) -> None:
    draws = torch.Generator().manual_seed(1)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=draws)


@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_steps_are_computed_of_copies_and_give_the_bits_of_the_optimizer_that_is_not_offloaded(optimizer):
    settings = config({"optimizer": optimizer, "launch": {"offload": "optimizer"}})
    there = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    here = copy.deepcopy(there)
    offloaded = Offloaded(settings, there, dict(there.named_parameters()))
    plain = build_optimizer(settings.optimizer, here)
    for _ in range(3):
        given(there)
        given(here)
        with Apart([tensor for p in there.parameters() for tensor in (p, p.grad) if tensor is not None]):
            offloaded.step()
        plain.step()
    assert all(torch.equal(one, other) for one, other in zip(there.parameters(), here.parameters(), strict=True))
    addresses = {p.data_ptr() for p in there.parameters()}
    assert addresses.isdisjoint({t.data_ptr() for entry in offloaded.state.values() for t in entry.values()})


def test_weights_that_something_else_changed_are_those_that_are_updated():
    settings = config({"optimizer": {**SGD, "momentum": 0.0, "weight_decay": 0.0}, "launch": {"offload": "optimizer"}})
    model = nn.Linear(2, 1, bias=False)
    offloaded = Offloaded(settings, model, dict(model.named_parameters()))
    with torch.no_grad():
        model.weight.fill_(5.0)
    model.weight.grad = torch.ones_like(model.weight)
    offloaded.step()
    assert model.weight.tolist() == [[pytest.approx(4.95)] * 2]


@pytest.mark.slow
@pytest.mark.usefixtures("beside_a_device")
@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=["adamw", "sgd"])
def test_an_offloaded_run_repeats_and_goes_on_bit_for_bit_and_its_contract_says_so(tmp_path, optimizer):
    setting = {**SETTING, "optimizer": optimizer, "launch": {"offload": "optimizer"}}
    plain = train(make(tmp_path / "plain"), **{**setting, "launch": {}})
    whole = train(make(tmp_path / "whole"), **setting)
    stopped = train(make(tmp_path / "stopped"), stops=(3, 9), **setting)
    again = train(make(tmp_path / "again"), **setting)
    assert whole["weights_sha256"] == stopped["weights_sha256"] == again["weights_sha256"] == plain["weights_sha256"]
    assert whole["numerics_class"] == stopped["numerics_class"] != plain["numerics_class"]


@pytest.mark.slow
def test_on_a_cpu_it_changes_nothing_and_says_so(tmp_path, monkeypatch):
    said: list[Any] = []
    monkeypatch.setattr(Events, "send", lambda _self, _event, **values: said.append(values.get("text")))
    setting = {**SETTING, "epochs": 1}
    plain = train(make(tmp_path / "plain"), **setting)
    asked = train(make(tmp_path / "asked"), **setting, launch={"offload": "optimizer"})
    assert (asked["weights_sha256"], asked["numerics_class"]) == (plain["weights_sha256"], plain["numerics_class"])
    assert offloading.NOTHING_TO_DO in said


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"optimizer": {"name": "lamb"}}, "optimizer.name: lamb; take adamw or sgd"),
        ({"optimizer": {"name": "sgd", "sam": {}}}, "optimizer.sam"),
        ({"optimizer": {"name": "adamw", "lookahead": {}}}, "optimizer.lookahead"),
        ({"precision": "fp16"}, "precision: fp16, under which the loss may be scaled; take bf16 or fp32"),
        ({"launch": {"parallel": "zero1"}}, "launch.parallel: zero1; take ddp"),
    ],
    ids=["lamb", "sam", "lookahead", "fp16", "zero1"],
)
def test_what_cannot_be_offloaded_is_refused_by_name(changes, what):
    launch = {"offload": "optimizer", **changes.get("launch", {})}
    with pytest.raises(ValueError, match=rf"launch.offload: optimizer does not go with {what}"):
        config({**changes, "launch": launch})
