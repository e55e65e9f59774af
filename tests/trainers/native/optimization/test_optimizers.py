"""Optimizers take what is trainable, and gradients are clipped to the limit and no further."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from mltrainer.configs.optimizers import AdamW, Lamb, Lion, Optimizer, Sam, Sgd
from mltrainer.errors import InputError
from mltrainer.records.run import Group
from mltrainer.trainers.native.optimization import optimizers
from mltrainer.trainers.native.optimization.groups import block, layer_shares, parameter_groups
from mltrainer.trainers.native.optimization.optimizers import KINDS, build_optimizer, own_average
from tests.refusals import refused
from tests.trainers.native.digits_runs import make, same, train

HAS_BITSANDBYTES = importlib.util.find_spec("bitsandbytes") is not None
NAMES = [name for name in KINDS if name != "adamw_8bit" or HAS_BITSANDBYTES]


def optimizer(name: str, **options: object) -> Optimizer:
    return TypeAdapter(Optimizer).validate_python({"name": name, **options})


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 1))


@pytest.mark.parametrize("name", NAMES)
def test_optimizers_learn_only_what_is_trainable(name):
    model = two_layers()
    model[0].requires_grad_(False)
    built = build_optimizer(optimizer(name), model)
    assert type(built).__name__ == KINDS[name][1]
    assert sum(p.numel() for group in built.param_groups for p in group["params"]) == 7


def test_the_defaults_are_those_of_the_field():
    assert (Sgd().lr, Sgd().momentum, Sgd().weight_decay) == (0.1, 0.9, 1e-4)
    assert (AdamW().lr, AdamW().betas, AdamW().weight_decay) == (1e-3, [0.9, 0.999], 0.01)
    assert (Lamb().lr, Lion().lr, Lion().betas, Sam().rho) == (2e-3, 3e-4, [0.9, 0.99], 0.05)


def test_norms_and_biases_may_be_spared_from_decay():
    groups = parameter_groups(optimizer("adamw", decay_norms_and_biases=False), two_layers())
    assert groups == [
        Group(lr=1.0, weight_decay=0.01, parameters=["0.weight", "2.weight"]),
        Group(lr=1.0, weight_decay=0.0, parameters=["0.bias", "1.weight", "1.bias", "2.bias"]),
    ]


def test_a_group_whose_pattern_matches_nothing_is_refused_with_the_names_there_are():
    with refused(r"no parameter's name matches '\^encoder'; the names are: 0.weight, 0.bias", where="optimizer.groups[1].match"):
        parameter_groups(optimizer("sgd", groups=[{"match": "bias$"}, {"match": "^encoder", "lr": 0.0}]), two_layers())


def test_of_several_groups_the_first_that_matches_counts():
    groups = [{"match": "^2", "lr": 0.1, "weight_decay": 0.5}, {"match": "bias$", "lr": 0.0}]
    found = parameter_groups(optimizer("sgd", groups=groups), two_layers())
    assert {(group.lr, group.weight_decay): group.parameters for group in found} == {
        (1.0, 1e-4): ["0.weight", "1.weight"],
        (0.0, 1e-4): ["0.bias", "1.bias"],
        (0.1, 0.5): ["2.weight", "2.bias"],
    }


class Encoder(nn.Module):
    """Parameters of its own, an embedding, two numbered blocks, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(1, 4))
        self.embed = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.ModuleDict({"attend": nn.Linear(4, 4), "norm": nn.LayerNorm(4)}) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("blocks.3.attn.2.weight", "blocks.3"), ("head.weight", "head"), ("place", ""), ("0.1.weight", "0"), ("a.b.bias", "a.b")],
)
def test_a_block_is_an_entry_of_a_numbered_container_or_a_module(name, expected):
    assert block(name) == expected


def test_each_block_below_the_head_learns_at_less():
    shares = layer_shares(dict(Encoder().named_parameters()), 0.5)
    assert (shares["place"], shares["embed.bias"]) == (0.5**4, 0.5**3)
    assert (shares["blocks.0.attend.weight"], shares["blocks.1.norm.bias"], shares["norm.weight"]) == (0.25, 0.5, 0.5)
    assert (shares["head.weight"], shares["head.bias"]) == (1.0, 1.0)


def test_layer_decay_multiplies_with_a_group_and_shows_as_groups():
    model = two_layers()
    model[1].requires_grad_(False)
    found = parameter_groups(optimizer("sgd", layer_decay=0.5, groups=[{"match": "bias$", "lr": 0.1}]), model)
    assert [(group.lr, group.parameters) for group in found] == [
        (0.5, ["0.weight"]),
        (0.05, ["0.bias"]),
        (1.0, ["2.weight"]),
        (0.1, ["2.bias"]),
    ]


@pytest.mark.slow
def test_layer_decay_sets_the_rate_of_a_step(tmp_path):
    chosen = {"optimizer": {"name": "adamw", "lr": 0.01, "layer_decay": 0.5}, "epochs": 1}
    assert [group["lr"] for group in train(make(tmp_path / "a"), **chosen)["groups"]] == [0.5, 1.0]


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ValidationError, match="is not a regular expression"):
        optimizer("sgd", groups=[{"match": "("}])


def taken_by_a_first_step(name: str) -> Tensor:
    """Return what the first step, with the gradient [3, -4], takes from a weight of norm 5, in learning rates."""
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 12.5**0.5)
    before = model.weight.detach().clone()
    built = build_optimizer(optimizer(name, lr=0.01, weight_decay=0.0), model)
    (model.weight * torch.tensor([[3.0, -4.0]])).sum().backward()
    built.step()
    return (before - model.weight.detach()) / 0.01


def test_ranger_goes_down_the_centralized_gradient_before_its_variance_can_be_rectified():
    assert torch.allclose(taken_by_a_first_step("ranger"), torch.tensor([[3.5, -3.5]]), atol=1e-3)


def test_the_first_step_of_lamb_is_as_long_as_its_trust_ratio_says():
    assert taken_by_a_first_step("lamb").norm().item() == pytest.approx(5.0, rel=1e-3)


WHOLE_RUNS: dict[str, dict[str, object]] = {
    "groups": {"optimizer": {"name": "sgd", "groups": [{"match": "bias", "lr": 0.5}]}},
    "lion": {"optimizer": {"name": "lion"}},
    "schedule-free": {"optimizer": {"name": "schedule_free"}},
    "lookahead": {"optimizer": {"name": "adamw", "lr": 0.01, "lookahead": {"k": 3}}},
    "sam": {"optimizer": {"name": "sgd", "lr": 0.05, "sam": {}}},
    "ema": {"averaging": {"name": "ema", "decay": 0.9}},
    "swa": {"averaging": {"name": "swa", "start": 0.0}},
    "fp16": {"precision": "fp16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE_RUNS)
def test_whole_runs_resume_in_mid_epoch_and_measure_their_best_again(tmp_path, case):
    chosen = {**WHOLE_RUNS[case], "epochs": 2}
    whole = train(make(tmp_path / "whole"), **chosen)
    assert same(train(make(tmp_path / "halves"), (8,), **chosen), whole)
    assert all(checkpoint["verified"] for checkpoint in whole["checkpoints"])
    assert ("trained" in whole["history"][-1]) == (case in ("schedule-free", "lookahead", "ema", "swa"))


@pytest.mark.slow
def test_a_schedule_that_waits_for_a_plateau_resumes_too(tmp_path):
    chosen = {"schedule": {"name": "plateau", "patience": 1}, "evaluate": {"every_n_steps": 2}, "early_stopping": None}
    whole = train(make(tmp_path / "whole"), **chosen)
    assert min(row["lr"] for row in whole["history"]) < 0.01
    assert same(train(make(tmp_path / "halves"), (11,), **chosen), whole)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "sgd", "sam": {}, "lookahead": {}}, "sam and lookahead do not go together"),
        ({"name": "ranger", "lookahead": {}}, "ranger includes a lookahead"),
        ({"name": "schedule_free", "lookahead": {}}, "schedule_free is evaluated at averaged weights"),
        ({"name": "sgd", "sam": {"rho": -1}}, "greater than 0"),
        ({"name": "sgd", "nesterov": True, "momentum": 0}, "nesterov is a form of momentum"),
    ],
)
def test_what_does_not_go_together_is_refused(options, told):
    with pytest.raises(ValidationError, match=told):
        optimizer(**options)  # type: ignore[arg-type]


def test_a_package_that_is_missing_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(optimizers.KINDS, "sgd", ("no_such_package.optim", "SGD", {}))
    with pytest.raises(InputError, match=r"needs no_such_package[\s\S]*mltrainer\[eightbit\]"):
        build_optimizer(optimizer("sgd"), two_layers())


def trained(built: torch.optim.Optimizer, model: nn.Module) -> list[Tensor]:
    """Return weights and state after some steps; in the third, one layer has no gradient."""
    torch.manual_seed(1)
    for step in range(5):
        built.zero_grad()
        model(torch.randn(4, 2)).square().sum().backward()
        if step == 2:
            model[0].weight.grad = None  # type: ignore[index]
        built.step()
    return [*model.parameters(), *(entries[name] for entries in built.state.values() for name in entries)]


@pytest.mark.parametrize("of_group", [{}, {"amsgrad": True}, {"maximize": True}])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_takes_pytorchs_own_steps_bit_for_bit(name, of_group):
    config = optimizer(name, weight_decay=0.1, decay_norms_and_biases=False)
    torch.manual_seed(0)
    models = [two_layers(), two_layers()]
    models[1].load_state_dict(models[0].state_dict())
    ours = build_optimizer(config, models[0])
    own = dict(models[1].named_parameters())
    groups = [
        {"params": [own[n] for n in group.parameters], "weight_decay": group.weight_decay}
        for group in parameter_groups(config, models[1])
    ]
    theirs = getattr(torch.optim, KINDS[name][1])(groups, lr=1e-3, fused=True)
    for group in (*ours.param_groups, *theirs.param_groups):
        group.update(of_group)
    assert all(map(torch.equal, trained(ours, models[0]), trained(theirs, models[1])))


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_hooks_of_an_optimizers_step_are_called_and_a_profile_shows_it(name):
    model = two_layers()
    built, called = build_optimizer(optimizer(name), model), list[str]()
    handles = [
        built.register_step_pre_hook(lambda *_: called.append("before")),
        register_optimizer_step_post_hook(lambda *_: called.append("after")),
    ]
    trained(built, model)
    for handle in handles:
        handle.remove()
    with torch.profiler.profile() as profile:
        trained(built, model)
    assert called == ["before", "after"] * 5
    assert any(event.key.startswith("Optimizer.step#") and event.count == 5 for event in profile.key_averages())


@pytest.mark.parametrize("options", [{"name": "adamw", "lookahead": {"k": 2}}, {"name": "schedule_free"}])
def test_asking_for_an_optimizers_average_leaves_its_weights_and_its_next_step_alone(options):
    def weights_after(asks: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = two_layers()
        built = build_optimizer(optimizer(**options), model)  # type: ignore[arg-type]
        for _ in range(3):
            model(torch.ones(4, 2)).square().sum().backward()
            built.step()
            average = own_average(built) if asks else None
        assert not asks or any(not torch.equal(p, other) for p, other in (average or {}).items())
        return [p.detach() for p in model.parameters()]

    assert all(map(torch.equal, weights_after(True), weights_after(False)))
