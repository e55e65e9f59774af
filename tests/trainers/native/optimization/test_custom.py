"""A task's own optimizer has the rates that its schedulers give, at whatever step a run goes on."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

import mltrainer
from mltrainer.configs.templates import applicable_space, baseline_template, shipped_template, tuning_template
from mltrainer.errors import InputError
from mltrainer.tasks.updating import Length, Scheduler, Updates
from mltrainer.trainers.native.optimization.custom import OwnUpdates
from tests.trainers.native.digits_runs import config, same, train

LENGTH = Length(12, 4)
KINDS: dict[str, tuple[Any, str]] = {
    "one cycle": (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=12), "step"),
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 3), "epoch"),
    "restarts": (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5), "step"),
    "cyclic": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3), "step"),
    "lambda": (lambda o: lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)), "epoch"),
}
PAGE = (Path(__file__).parents[4] / "docs/INTEGRATIONS.md").read_text("utf-8")
OWN: dict[str, Any] = {"optimizer": {"name": "own"}, "schedule": {"name": "own"}, "clip": None}


def updates(make: Callable[[Any], Any], every: Any, frequency: int = 1) -> Updates:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    return Updates(optimizer, [Scheduler(make(optimizer), every, frequency)])


def own(make: Callable[[], Updates]) -> OwnUpdates:
    return OwnUpdates(make, LENGTH, Path.cwd(), follows=True)


def rates_of_torch(make: Callable[[], Updates], frequency: int = 1) -> list[tuple[float, float]]:
    """Return rate and momentum of each step as a plain loop has them."""
    made, found = make(), []
    (scheduler,) = made.schedulers
    for step in range(1, LENGTH.steps + 1):
        found.append((made.optimizer.param_groups[0]["lr"], made.optimizer.param_groups[0]["momentum"]))
        made.optimizer.step()
        count = step if scheduler.every == "step" else step / LENGTH.steps_per_epoch
        if count % frequency == 0 and step < LENGTH.steps:
            scheduler.it.step()
    return found


def now(it: OwnUpdates) -> tuple[float, float]:
    return it.optimizer.param_groups[0]["lr"], it.optimizer.param_groups[0]["momentum"]


@pytest.mark.parametrize("frequency", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_rates_and_momentum_are_those_of_a_plain_loop(kind, frequency):
    make, every = KINDS[kind]
    it, found = own(lambda: updates(make, every, frequency)), []
    for step in range(1, LENGTH.steps + 1):
        it.enter(step, [])
        found.append(now(it))
    assert found == rates_of_torch(lambda: updates(make, every, frequency), frequency)


@pytest.mark.parametrize("order", [[12], [7, 3, 12], [12, 1, 5, 5]], ids=["late", "back and on", "again"])
def test_a_step_has_its_rate_whatever_came_before(order):
    make, every = KINDS["one cycle"]
    it, expected = own(lambda: updates(make, every)), rates_of_torch(lambda: updates(make, every))
    for step in order:
        it.enter(step, [])
        assert now(it) == expected[step - 1]


def test_beyond_the_end_of_the_run_the_rate_stays():
    make, every = KINDS["one cycle"]
    it = own(lambda: updates(make, every))
    it.enter(40, [])
    assert now(it) == rates_of_torch(lambda: updates(make, every))[-1]


@pytest.mark.slow
def test_the_example_of_the_page_halves_its_rate_also_after_an_interruption(tmp_path):
    ((name, source),) = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, flags=re.DOTALL)
    found = []
    for folder, stops in (("whole", ()), ("parts", (30, 300))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(source)
        changes = {**OWN, "epochs": 80, "batch_size": 20, "early_stopping": None, "metric": {"name": "loss", "mode": "min"}}
        found.append(train(tmp_path / folder, stops, task={"use": f"{name}:Halved"}, accumulate=1, **changes))
        sys.modules.pop(name)
    assert same(*found)
    assert found[0]["history"][0]["lr"] == 0.1
    assert found[0]["history"][-1]["lr"] < 0.01


class Plain(mltrainer.Task):
    """A task that makes no optimizer."""

    def samples(self) -> Any:
        return torch.randn(200, 2), torch.zeros(200, dtype=torch.int64)

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets)


class Odd(Plain):
    def updates(self, model: torch.nn.Module, length: Length) -> Any:
        return torch.optim.SGD(model.parameters())


@pytest.mark.parametrize(
    ("task", "words"),
    [(Plain, "Plain makes no optimizer of its own"), (Odd, r"updates\(\): expected .*Updates with a torch optimizer, found SGD")],
)
def test_a_task_without_an_optimizer_is_told_what_to_write(task, words):
    with pytest.raises(InputError, match=words):
        mltrainer.fit(task(), epochs=1, **OWN)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": {"name": "own", "sam": {}}}, "takes no sam: write it where the task makes the optimizer"),
        ({"optimizer": {"name": "own", "layer_decay": 0.5}}, "takes no layer_decay"),
        ({"schedule": {"name": "own"}}, "schedule.name: own goes with optimizer.name: own"),
        (
            {**OWN, "task": {"kind": "image_classification"}, "data": {"source": "x"}, "model": {"name": "mlp"}},
            "task of your own",
        ),
    ],
)
def test_what_does_not_go_with_an_own_optimizer_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        config(changes)


def test_no_search_takes_rates_for_factors_of_the_tasks_own():
    values = config(OWN).model_dump()
    assert "optimizer.lr" not in applicable_space(tuning_template(None)["space"], values)
    factors = {"optimizer.lr": {"log_uniform": [0.1, 10.0]}}
    assert applicable_space(factors, values) == factors


def test_a_lightning_module_begins_with_its_own_template():
    shipped = shipped_template("mltrainer.integrations.lightning:Lightning")
    assert (shipped["optimizer"], shipped["schedule"], shipped["clip"]) == ({"name": "own"}, {"name": "own"}, None)
    assert shipped_template("my.tasks:Task") == shipped_template(None) == baseline_template(None)


def test_no_warning_of_the_replay_reaches_the_user():
    make, every = KINDS["cosine"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own(lambda: updates(make, every)).enter(9, [])
