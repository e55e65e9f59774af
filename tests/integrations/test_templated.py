"""Modules as templates of projects write them: objects in options, loaders beside the module, hooks that only measure."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mltrainer.errors import InputError
from tests.integrations.nets import NET, keys
from tests.integrations.templated import TEMPLATED
from tests.projects import write_light_template
from tests.trainers.native.digits_runs import same, train

pytest.importorskip("lightning")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
    pytest.mark.filterwarnings("ignore:The `srun` command is available:UserWarning"),
    pytest.mark.filterwarnings("ignore:Attribute 'net' is an instance of `nn.Module`:UserWarning"),
]
HYDRA: dict[str, Any] = {
    "net": {"_target_": "digits_task.Dense", "width": 16, "act": {"_target_": "torch.nn.Tanh"}},
    "optimizer": {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 0.01},
}
CLI: dict[str, Any] = {
    "net": {"class_path": "digits_task.Dense", "init_args": {"width": 16, "act": {"class_path": "torch.nn.Tanh"}}},
    "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}},
}
PLATEAU = {"_target_": "torch.optim.lr_scheduler.ReduceLROnPlateau", "_partial_": True, "factor": 0.5, "patience": 0}


def made(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "digits_task.py").write_text(NET + TEMPLATED)
    return root


def given(module: str = "Classifier", data: str | None = "Digits", **more: Any) -> dict[str, Any]:
    """Return the keys of a training of the template's module."""
    found = keys(module, data or "")
    found["task"]["options"] |= more
    if data is None:
        del found["task"]["options"]["data"]
    return {**found, "metric": {"name": "val_acc", "mode": "max"}}


def test_objects_of_options_train_as_those_that_the_module_makes_itself(tmp_path):
    whole = train(made(tmp_path / "own"), **given("Fixed"))
    for name, options in (("hydra", HYDRA), ("cli", CLI)):
        found = train(made(tmp_path / name), **given(module_options=options))
        assert found["weights_sha256"] == whole["weights_sha256"]
    best = [row["validation"]["val_acc_best"] for row in found["history"]]
    assert best == [row["validation"]["val_acc"] for row in found["history"]]  # each evaluation is a function of the weights


def test_a_scheduler_that_is_given_follows_the_metric_also_after_an_interruption(tmp_path):
    options = given(module_options={**HYDRA, "scheduler": PLATEAU})
    whole, parts = train(made(tmp_path / "a"), **options), train(made(tmp_path / "b"), (8, 16), **options)
    assert same(whole, parts)


def test_loaders_of_a_function_train_as_those_of_a_data_module(tmp_path):
    beside = given(data=None, module_options=HYDRA, loaders="digits_task:loaders", data_options={"batch": 8})
    found, whole = train(made(tmp_path / "a"), **beside), train(made(tmp_path / "b"), **given(module_options=HYDRA))
    assert found["weights_sha256"] == whole["weights_sha256"]


PROJECT = """name: templated
task:
  use: mltrainer.integrations.lightning:Lightning
  options:
    module: "net:Classifier"
    data: "net:Digits"
    module_options:
      net: {_target_: net.Dense, width: 16}
      optimizer: {_target_: torch.optim.Adam, _partial_: true, lr: 0.01}
metric: {name: val_acc, mode: max}
acceptance: {val_acc: ">= 0.2"}
"""


def test_a_template_s_module_walks_all_five_phases(tmp_path, cli):
    (tmp_path / "net.py").write_text(NET + TEMPLATED)
    write_light_template(tmp_path)
    (tmp_path / "mltrainer.yaml").write_text(PROJECT)
    cli("phase", "run", "planning", "--set", "epochs=12", "--set", "batch_size=16", "--project", tmp_path, code=0)
    cli("run", "--project", tmp_path, code=0, out="all five gates hold")


class Calling(torch.nn.Module):
    """Its step calls the module in one of three ways, and may fail in it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def step(self, way: str, x: torch.Tensor) -> torch.Tensor:
        assert self.net.weight.shape == (2, 3)
        return {"forward": self.forward, "part": self.net, "call": self}[way](x)


class Doubling(Calling):
    """Does more than its part."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * self.net(x)


def test_a_part_is_not_the_module_where_forward_does_more():
    from mltrainer.integrations.lightning import _called

    model, seen, x = Doubling(), [], torch.ones(4, 3)
    model.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    with _called(model):
        assert torch.equal(model.step("part", x), model.net(x))
    assert not seen


@pytest.mark.parametrize("way", ["forward", "part", "call"])
def test_hooks_see_each_call_of_a_step_once_and_the_module_is_as_before(way):
    from mltrainer.integrations.lightning import _called

    model, seen, of_part = Calling(), [], []
    before = dict(vars(model))
    model.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    model.net.register_forward_hook(lambda _module, inputs, _output: of_part.append(inputs[0]))
    x = torch.ones(4, 3)
    with _called(model):
        found = [model.step(way, x), model.step(way, x)]
    with pytest.raises(RuntimeError, match="shapes"), _called(model):
        model.step(way, torch.ones(4, 5))
    assert len(seen) == len(of_part) == 2
    assert all(torch.equal(each, torch.nn.functional.linear(x, model.net.weight, model.net.bias)) for each in found)
    assert vars(model).keys() == before.keys()
    assert not model._forward_pre_hooks


NET_OF = {"_target_": "digits_task.Dense"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"net": {"_target_": "os.system", "command": "touch executed"}}, "os.system is a builtin_function_or_method"),
        ({"net": {"_target_": "builtins.eval", "_args_": ["1"]}}, "builtins.eval is a builtin_function"),
        (
            {"net": {"class_path": "subprocess.Popen", "init_args": {"args": "ls"}}},
            "subprocess.Popen is no class of your project",
        ),
        ({"net": {"_target_": "digits_task.make_dense"}}, "digits_task.make_dense is a function, and classes alone are made"),
        ({"net": {"_target_": "torch.nn._Hidden"}}, "names no class.*begin with an underscore"),
        ({"net": {"_target_": "digits_task.Densee"}}, "there is no digits_task.Densee"),
        ({"net": {"_target_": "digits_task.Dense", "widht": 3}}, "no option 'widht' of Dense; did you mean 'width'"),
        (
            {"net": {"class_path": "digits_task.Dense", "width": 3}},
            "beside class_path, init_args .* found width.*under init_args",
        ),
        (
            {"net": NET_OF, "optimizer": {"_target_": "torch.optim.Adam", "_partial_": True, "rate": 1}},
            "no option 'rate' of Adam",
        ),
    ],
)
def test_a_description_that_makes_no_class_is_refused_by_name(tmp_path, options, words, monkeypatch):
    with pytest.raises(InputError) as raised:
        train(made(tmp_path), **given(module_options={**HYDRA, **options}))
    assert re.search(words, f"{raised.value} {raised.value.hint}", re.DOTALL)
    assert "module_options." in str(raised.value)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "Classifier has no train_dataloader.*options.data.*options.loaders"),
        ({"loaders": "digits_task:no_loaders"}, "no_loaders returned DataLoader; two or three loaders were expected"),
        ({"loaders": "digits_task:Dense"}, "digits_task:Dense is no function"),
        ({"loaders": "digits_task:loaders", "data": "digits_task:Digits"}, "expected data or loaders, found both"),
        (
            {"loaders": "digits_task:loaders", "data_options": {"batches": 3}},
            "no option 'batches' of loaders; did you mean 'batch'",
        ),
    ],
)
def test_loaders_that_are_missing_or_wrong_are_named_with_the_way(tmp_path, more, words):
    found = given(data=None, module_options=HYDRA)
    found["task"]["options"] |= more
    with pytest.raises(InputError) as raised:
        train(made(tmp_path), **found)
    assert re.search(words, f"{raised.value} {raised.value.hint}", re.DOTALL)


HOOKS = {  # the body of a hook, and whether a training without it is the same
    "on_fit_start": [("print('begins')", True), ("self.net.requires_grad_(False)", False)],
    "on_train_start": [("self.val_acc.reset()", True), ("self.net.train()", False), ("torch.manual_seed(1)", False)],
    "on_train_epoch_start": [
        ("self.began = time.time()", True),
        ("self.criterion = None", False),
        ("self.training = False", False),
    ],
    "on_train_epoch_end": [("pass", True), ("super().on_train_epoch_end()", True), ("self.trainer.should_stop = True", False)],
    "on_train_batch_start": [("return None", True), ("return -1", False)],
    "on_before_optimizer_step": [
        ("self.log('norm', 1.0)", True),
        ("for p in self.parameters():\n            p.grad.mul_(0.5)", False),
    ],
    "on_after_backward": [
        ("w = self.net.layers[0].weight\n        w *= 0.5", False),
        ("for g in self.trainer.optimizers[0].param_groups:\n            g.update(lr=1)", False),
    ],
    "configure_gradient_clipping": [("pass", False), ("super().configure_gradient_clipping(*args)", True)],
    "optimizer_step": [("pass", False), ("super().optimizer_step(*args)", True)],
    "optimizer_zero_grad": [
        ("optimizer.zero_grad(set_to_none=True)", True),
        ("optimizer.zero_grad()", True),
        ("optimizer.zero_grad(set_to_none=False)", False),
        ("self.net.zero_grad()", False),
    ],
    "backward": [("loss.backward()", True), ("(2 * loss).backward()", False)],
    "lr_scheduler_step": [("pass", False)],
    "transfer_batch_to_device": [("return args[0]", False), ("return super().transfer_batch_to_device(*args)", True)],
    "on_save_checkpoint": [("pass", True), ("args[0]['more'] = 1", False), ("args[0].update(more=1)", False)],
    "on_load_checkpoint": [("self.net = args[0]['net']", False)],
    "on_validation_epoch_end": [("self.log('a', self.val_acc.compute())", True), ("self.net.layers[0].weight.zero_()", False)],
    "configure_callbacks": [("return []", True), ("return [object()]", False)],
}


GIVEN = {"optimizer_zero_grad": "epoch, batch_idx, optimizer", "backward": "loss"}  # arguments of a hook; of the others *args


def test_hooks_are_judged_by_what_they_do(tmp_path, monkeypatch):
    from mltrainer.integrations.lightning import _is_metric
    from mltrainer.integrations.lightning_hooks import faults

    lines = ["import time", NET + TEMPLATED]
    for name, bodies in HOOKS.items():
        for number, (body, _) in enumerate(bodies):
            lines.append(f"class H_{name}_{number}(Fixed):\n    def {name}(self, {GIVEN.get(name, '*args')}):\n        {body}\n")
    (tmp_path / "hooked_nets.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    import hooked_nets  # type: ignore[import-not-found]

    for name, bodies in HOOKS.items():
        for number, (body, is_harmless) in enumerate(bodies):
            found = faults(getattr(hooked_nets, f"H_{name}_{number}")(), [name], _is_metric)
            assert (found == {}) == is_harmless, (name, body, found)
    del sys.modules["hooked_nets"]
