"""A model that several processes compute together by its plan: their number decides the bits, and nothing else does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.errors import InputError, MltrainerError, StoppedError
from mltrainer.trainers.native.optimization.optimizers import build_optimizer
from mltrainer.trainers.native.parallel.tensor import TensorParallel
from mltrainer.trainers.native.ranks import Ranks
from tests.refusals import refused
from tests.trainers.native.digits_runs import CONFIG, make, train
from tests.trainers.native.test_partition import states_of, weights_of
from tests.trainers.native.test_ranks import SETTING, at_step, bits, killed, ranks_of, train_on

HELD = {"weights": "begin.safetensors", "freeze": ["layers.0.*"]}


def of(model: str, **changes: Any) -> dict[str, Any]:
    """Return the changes to a config that has two processes compute a model together."""
    return {"task": {"use": "digits_task:Digits", "options": {"model": model}}, "tensor_parallel": 2, **changes}


@pytest.mark.slow
@pytest.mark.long
def test_two_trainings_of_a_split_model_have_one_chain_that_is_near_a_whole_ones(tmp_path):
    first, second, whole = (make(tmp_path / name) for name in ("first", "second", "whole"))
    found = train_on(first, None, **of("planned"))  # mltrainer starts the two by itself
    again = train_on(second, 2, **of("planned"))
    assert found["processes"] == 2
    assert bits(found, first) == bits(again, second)
    assert states_of(first) == states_of(second)
    alone = train(whole, **{**SETTING, **of("planned"), "tensor_parallel": 1})
    assert found["weights_sha256"] != alone["weights_sha256"]  # near, and not equal: sums have another order
    for one, other in zip(found["history"], alone["history"], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
        assert one["validation"]["loss"] == pytest.approx(other["validation"]["loss"], rel=1e-4)
        assert one["update_ratios"] == pytest.approx(other["update_ratios"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("model", ["planned", pytest.param("planned_transformer", marks=pytest.mark.long)])
def test_a_split_model_goes_on_with_the_bits_of_an_undisturbed_run(tmp_path, model):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    more = of(model, epochs=12, early_stopping=None, checkpoint={"every_n_steps": 5, "keep": 2})
    with pytest.raises(MltrainerError, match="process 1 of 2 was ended by signal 9"):
        train_on(root, None, at_step(12, lambda: killed(root, 1, signal.SIGKILL)), **more)
    assert not ranks_of(root)
    with pytest.raises(StoppedError):
        train_on(root, None, at_step(24, lambda: signal.raise_signal(signal.SIGINT)), **more)
    result = train_on(root, None, **more)
    assert [row["cause"] for row in result["interruptions"]] == ["killed", "SIGINT"]
    assert bits(result, root) == bits(train_on(one, None, **more), one)
    assert states_of(root) == states_of(one)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 1, "batch_size": 16, "evaluate": {"every_n_steps": 2}},
        {"precision": "bf16", "gradient_checkpointing": ["layers.0"]},
        {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}, "start": HELD, "signals": False},
        {"loader": {"workers": 2}, "optimizer": {"name": "lion", "lr": 1e-4}, "clip": {"value": 0.01}},
    ],
    ids=["steps of one micro-batch", "bf16, recomputed", "held", "loader processes, Lion"],
)
def test_split_models_repeat(tmp_path, changes):
    more = of("planned_transformer", **changes)
    first, second, whole = (make(tmp_path / name) for name in ("first", "second", "whole"))
    for root in (first, second, whole) if "start" in changes else ():
        torch.manual_seed(0)
        save_file(weights_of(root, "PlannedTransformer"), root / "begin.safetensors")
    found = train_on(first, None, **more)
    assert bits(found, first) == bits(train_on(second, None, **more), second)
    alone = train(whole, **{**SETTING, **more, "tensor_parallel": 1})
    for one, other in zip(found["history"], alone["history"], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=0.02)


@pytest.mark.slow
@pytest.mark.long
def test_a_held_norm_of_a_split_model_stays_held_where_the_run_goes_on(tmp_path):
    root, one = make(tmp_path / "run"), make(tmp_path / "one")
    held = {"weights": "begin.safetensors", "freeze": ["1.*"]}
    more = of("planned_norm", epochs=12, early_stopping=None, checkpoint={"every_n_steps": 5, "keep": 2}, start=held)
    for folder in (root, one):
        torch.manual_seed(0)
        save_file(weights_of(folder, "PlannedNorm"), folder / "begin.safetensors")
    with pytest.raises(StoppedError):
        train_on(root, None, at_step(7, lambda: signal.raise_signal(signal.SIGINT)), **more)
    assert bits(train_on(root, None, **more), root) == bits(train_on(one, None, **more), one)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_all_processes_of_a_split_model(tmp_path):
    root = make(tmp_path)
    changes = of("planned", optimizer={"name": "sgd", "lr": 1e12}, clip=None, schedule={"name": "constant"})
    found = train_on(root, None, **changes)
    assert found["nonfinite"]["what"] in ("loss", "gradient")
    assert not ranks_of(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("normed", "split by its plan, the model computes something else"),
        ("scaled", "the gradient of scale, which is off by"),
        ("mixed late", r"the gradient of down\.weight, which is off by"),
        ("penalized", "its loss, which is off by"),
        ("scaled late", "scale of process 1 is"),
        ("open", "split by its plan, the model cannot be computed: IndexError: Target"),
        ("alone", "split by its plan, the model cannot be computed: RuntimeError"),
    ],
)
def test_a_plan_that_is_not_the_models_is_refused(tmp_path, kind, said):
    root, changes = make(tmp_path), of(f"wrong {kind}")
    changes["task"]["use"] = "digits_task:Penalizing" if kind == "penalized" else "digits_task:Digits"
    with refused(said, hint="--set tensor_parallel=1"):
        train_on(root, None, **changes)
    assert not (root / ".mltrainer/runs/run/result.json").exists()


def test_another_number_of_processes_is_refused_by_all_that_train(tmp_path):
    root = make(tmp_path)
    with pytest.raises(
        InputError, match="tensor_parallel: 2 has 2 processes compute each micro-batch together; 4 give other bits"
    ):
        train_on(root, 4, **of("planned"))
    with pytest.raises(InputError, match="computed by 2 processes together, and here by 1"):
        train(root, **of("planned"))  # in this process, as trials of a search are


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"launch": {"processes": 4}}, "4 give other bits"),
        ({"launch": {"parallel": "fsdp"}}, "launch.parallel: fsdp"),
        ({"tensor_parallel": 3}, "3 is no power of two"),
        ({"optimizer": {"name": "lamb"}}, "optimizer.name: lamb"),
        ({"optimizer": {"name": "schedule_free"}}, "optimizer.name: schedule_free"),
        ({"optimizer": {"name": "sgd", "sam": {"rho": 0.05}}}, "optimizer.sam"),
        ({"optimizer": {"name": "sgd", "lookahead": {}}}, "optimizer.lookahead"),
        ({"averaging": {"name": "ema"}}, "averaging"),
        ({"start": {"weights": "a.safetensors", "freeze": ["a"], "unfreeze": [{"match": "a", "epoch": 2}]}}, "start.unfreeze"),
        ({"clip": {"adaptive": 0.01}}, "clip.adaptive"),
        ({"gradients": {"noise": {"eta": 0.01}}}, "gradients.noise"),
        ({"precision": "fp16"}, "precision: fp16"),
        ({"compile": True}, "compile: true"),
        ({"device": "cuda", "precision": "auto"}, "precision: auto"),
    ],
)
def test_what_cannot_be_computed_in_parts_is_refused_by_its_key(changes, said):
    with pytest.raises(ValidationError, match=said):
        TrainingConfig.model_validate({**CONFIG, **of("planned"), **changes})


def test_the_number_of_processes_that_compute_together_names_a_run():
    one = TrainingConfig.model_validate(CONFIG)
    assert config_digest(one.model_copy(update={"tensor_parallel": 2})) != config_digest(one)
    assert config_digest(one) == config_digest(TrainingConfig.model_validate({**CONFIG, "tensor_parallel": 1}))
    assert one.model_copy(update={"tensor_parallel": 2}).processes == 2


# --- one of two processes, whose exchanges do nothing -----------------------------------------------


class Planned(nn.Sequential):
    tp_plan: ClassVar[Any] = {"0": "colwise", "2": "rowwise"}

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))


@pytest.fixture
def team() -> Iterator[Ranks]:
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    ranks = Ranks()
    ranks.size = 2
    yield ranks
    torch.distributed.destroy_process_group()


def test_a_process_holds_half_of_planned_matrices_gradients_and_moments(team):
    model, config = Planned(), TrainingConfig.model_validate({**CONFIG, **of("planned")})
    trained = dict(model.named_parameters())
    planned = TensorParallel(model, team)
    own = planned.partition.own
    optimizer = build_optimizer(config.optimizer, model, own)
    planned._split()
    assert sum(p.untyped_storage().nbytes() for name, p in trained.items() if name != "2.bias") == 0
    model(torch.ones(3, 64)).sum().backward()
    optimizer.step()
    whole = {"0.weight": 64 * 96, "0.bias": 96, "2.weight": 96 * 32, "2.bias": 64}  # 2.bias is whole in each
    for name, p in own.items():
        held = [p, p.grad, *(value for value in optimizer.state[p].values() if value.dim())]
        assert [tensor.untyped_storage().nbytes() for tensor in held] == [2 * whole[name]] * 4
    planned.gather()
    assert {name: p.shape for name, p in model.named_parameters()} == {name: p.shape for name, p in Planned().named_parameters()}
    assert [*model.parameters()] == [*trained.values()]


def test_gradients_of_a_module_that_is_computed_anew_and_used_twice_are_added(team):
    def gradients(compute: Any) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = Planned()
        planned = TensorParallel(model, team)
        own = planned.partition.own
        planned._split()
        inputs = [torch.full((3, 64), value, requires_grad=True) for value in (0.5, 2.0)]
        (compute(model, inputs[0]) + compute(model, inputs[1])).sum().backward()
        return {name: p.grad for name, p in own.items() if p.grad is not None}

    expected = gradients(lambda model, x: model(x))
    found = gradients(lambda model, x: checkpoint(model, x, use_reentrant=True))
    assert {name: g.tolist() for name, g in found.items()} == {name: pytest.approx(g.numpy()) for name, g in expected.items()}


def tied() -> nn.Module:
    model = Planned()
    model[2] = nn.Linear(64, 96)
    model[2].weight = model[0].weight
    return model


def with_plan(plan: Any) -> nn.Module:
    model = Planned()
    model.tp_plan = plan
    return model


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(nn.Linear(2, 2)), "no plan by which it could be split: tp_plan of Sequential is None"),
        (with_plan({}), "no plan by which it could be split"),
        (with_plan({"layers.*.up": "colwise"}), "'layers.*.up' matches no module; there are 0, 2"),
        (with_plan({"0": "columns"}), "the style of 0: expected one of colwise, rowwise"),
        (with_plan({"1": "colwise"}), "1 is a ReLU; Linear is split"),
        (tied(), "2.weight is 0.weight at the same time"),
    ],
)
def test_a_plan_by_which_a_model_cannot_be_split_is_refused(team, model, said):
    with pytest.raises(InputError) as caught:
        TensorParallel(model, team)
    assert said in caught.value.message


def test_a_size_that_processes_do_not_divide_is_refused_with_the_parameters_name(team):
    model = Planned()
    model[2] = nn.Linear(95, 32)
    with pytest.raises(InputError, match=r"2.weight is \[32, 95\], and 2 processes do not divide its dimension 1") as caught:
        TensorParallel(model, team)
    assert caught.value.hint


# --- a model of Hugging Face, by the plan that it comes with ----------------------------------------

LLAMA = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM
import mltrainer

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


class Digits(mltrainer.Task):
    def samples(self):
        places = torch.arange(17)
        rows = torch.stack([(first + step * places) % 61 for first in range(10) for step in range(1, 13)])
        return TensorDataset(rows[:, :-1], rows[:, 1:])

    def model(self):
        return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=4, num_key_value_heads=2))

    def forward(self, model, batch):
        rows, next_ones = batch
        return model(rows).logits, next_ones

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def loss_items(self, targets):
        return targets.numel()
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_llama_is_split_by_its_own_plan(tmp_path):
    pytest.importorskip("transformers")
    roots = [make(tmp_path / name) for name in ("first", "second", "whole")]
    for root in roots:
        (root / "digits_task.py").write_text(LLAMA)
    changes: dict[str, Any] = {"task": {"use": "digits_task:Digits"}, "metric": {"name": "loss", "mode": "min"}}
    found, again = (train_on(root, None, tensor_parallel=2, **changes) for root in roots[:2])
    assert bits(found, roots[0]) == bits(again, roots[1])
    alone = train(roots[2], **{**SETTING, **changes})
    for one, other in zip(found["history"], alone["history"], strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-4)
