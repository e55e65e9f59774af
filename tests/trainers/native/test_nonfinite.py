"""A number that is not finite ends a run before it spoils the weights, and is followed to where it arose."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.diagnostics.nan_loss import find, located_text
from mltrainer.diagnostics.signals import Run
from mltrainer.records.partial import partial
from mltrainer.records.run import Located, NonFinite
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.signals.nonfinite import outlier
from mltrainer.trainers.native.stepping import Stepper
from mltrainer.workspace import plain
from tests.trainers.native.digits_runs import TASK, job, make, part_of

F = nn.functional


class Rows(Task):
    """Rows into two classes; what a case breaks, it overrides."""

    def samples(self) -> tuple[Tensor, Tensor]:
        x = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
        return x, (x[:, 0] > 0).long()

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)


class LogOfZero(Rows):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -torch.softmax(outputs * 1e4, 1).log().gather(1, targets[:, None]).mean()


class ZeroByZero(Rows):
    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        shares = F.relu(model(batch[0]))
        return shares / shares.sum(1, keepdim=True), batch[1]


class RootOfZero(Rows):
    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        outputs = model(batch[0])
        return outputs + torch.sqrt((outputs - outputs.detach()) ** 2), batch[1]


class Gone(Rows):
    def samples(self) -> tuple[Tensor, Tensor]:
        x, y = super().samples()
        x[7, 3] = math.nan
        return x, y


class Masked(Rows):
    """Attention over six places, of which a mask leaves some rows none; its infinities are meant, the NaN is not."""

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        scores = batch[0][:, :, None] * batch[0][:, None]
        hidden = torch.ones(6, 6).triu(1).bool() | (batch[0] < -2.2)[:, :, None]
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return model((weights @ batch[0][:, :, None])[:, :, 0]), batch[1]


class Written(Rows):
    """A logarithm that is written into a column, in place."""

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        outputs = model(batch[0]).clone()
        outputs[:, 0].log_()
        outputs[:, 1] += 1
        return outputs, batch[1]


class Narrow(Rows):
    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        return model(batch[0] * 3e5), batch[1]


class Squared(Rows):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 2))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, F.one_hot(targets, 2).float())


class Divided(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] / 0


class OwnDerivative(Rows):
    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        return Divided.apply(model(batch[0])), batch[1]


class LongGradient(Rows):
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().loss(outputs, targets) + (outputs - outputs.detach()).sum() * 1e30


def failed(task: Task, **changes: Any) -> dict[str, Any]:
    """Return what ended a run, as its record holds it."""
    settings = {"epochs": 2, "batch_size": 16, "early_stopping": None, "clip": None, **changes}
    result = mltrainer.fit(task, tell=lambda _event: None, **settings).result
    assert result["state"] == "failed"
    return dict(NonFinite.model_validate(plain(result["nonfinite"])).model_dump())


FAST: dict[str, Any] = {"optimizer": {"name": "sgd", "lr": 1e30}}
CASES: list[tuple[Task, dict[str, Any], str, list[str]]] = [
    (LogOfZero(), {}, "loss", ["log in the task's loss", "[16, 2] float32 holds -inf", "its inputs ranged from 0 to 1"]),
    (ZeroByZero(), {}, "loss", ["div in the task's forward", "holds nan", "first in sample ", "from 0 to"]),
    (RootOfZero(), {}, "gradient", ["the derivative of sqrt in the task's forward", "inputs ranged from 0 to 0"]),
    (Gone(), {}, "loss", ["the data itself: inputs [16, 6]", "1 of 96 numbers", "first in sample 7, place [3]"]),
    (Gone(), {"accumulate": 2}, "loss", ["the data itself", "first in sample 7, place [3]"]),
    (Masked(), {}, "loss", ["softmax in the task's forward", "holds nan", "its inputs ranged from -inf to"]),
    (Written(), {}, "loss", ["log in the task's forward", "[16] float32 holds nan"]),
    (Narrow(), {"precision": "fp16"}, "loss", ["linear in 0 (Linear)", "[16, 16] float16 holds", "float16 ends at 65504"]),
    (Squared(), FAST, "loss", ["linear in 1 (Linear)", "e+28"]),
    (Squared(), {"optimizer": {"name": "sgd", "lr": 1e30}, "precision": "bf16"}, "loss", ["in 1 (Linear)", "bfloat16 holds"]),
    (OwnDerivative(), {}, "gradient", ["the derivative of Divided in the task's forward", "incoming gradient ranged from -0."]),
    (LongGradient(), {}, "gradient", ["the norm of all gradients, each of them finite", "the longest is that of"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "changes", "what", "told"), CASES, ids=[type(case[0]).__name__ for case in CASES])
def test_the_first_operation_is_named(task, changes, what, told):
    found = failed(task, **changes)
    text = located_text(partial(Located, found["located"]))
    assert found["what"] == what
    assert [part for part in told if part not in text] == [], text
    assert text in find(Run.of({"nonfinite": found})).reason


@pytest.mark.slow
def test_the_users_line_is_named():
    located = failed(ZeroByZero())["located"]
    line = next(nr for nr, text in enumerate(Path(__file__).read_text("utf-8").splitlines(), 1) if "return shares /" in text)
    assert located["line"].endswith(f"test_nonfinite.py:{line}")
    assert (located["operation"], located["part"], located["module"]) == ("div", "forward", "")


HEALTHY, LIMITED = "return nn.functional.cross_entropy(outputs, targets)", "+ 0 * (self.limit - outputs.abs().max()).log()"


def limited(root: Path, monkeypatch: pytest.MonkeyPatch, looks: bool = True, **more: Any) -> dict[str, Any]:
    """Train digits whose loss ends where an output grows beyond a limit; without looking, as on a GPU, that comes late."""
    make(root)
    text = TASK.replace(HEALTHY, f"{HEALTHY} {LIMITED}").replace("greedy=False):", "greedy=False):\n        self.limit = 2.2")
    (root / "digits_task.py").write_text(text)
    made = Stepper.__init__

    def init(self: Stepper, *arguments: Any) -> None:
        made(self, *arguments)
        self.looks = looks

    monkeypatch.setattr(Stepper, "__init__", init)
    return part_of(root, {**job({"clip": None}), **more}, lambda _step: False)


@pytest.mark.slow
def test_the_weights_are_those_before_the_step_whether_numbers_are_looked_at_or_come_later(tmp_path, monkeypatch):
    at_once = limited(tmp_path / "at once", monkeypatch)
    later = limited(tmp_path / "later", monkeypatch, looks=False)
    step = at_once["nonfinite"]["step"]
    before = limited(tmp_path / "before", monkeypatch, max_steps=step - 1)
    assert step > 7
    assert before["stop_reason"] == "max_steps"
    assert at_once["chain"] == later["chain"]
    assert at_once["steps"] == later["steps"] == step
    assert later["weights_sha256"] == before["weights_sha256"]
    where, again = (result["nonfinite"]["located"] for result in (at_once, later))
    assert (where["replayed_from"], again["replayed_from"]) == (step - 1, 6 * ((step - 1) // 6))
    assert {**where, "replayed_from": 0} == {**again, "replayed_from": 0}
    assert (where["operation"], where["line"], where["holds"]) == ("log", again["line"], "nan")
    assert where["line"].startswith("digits_task.py:")


@pytest.mark.slow
def test_a_probe_takes_the_steps_that_planning_compares(tmp_path, monkeypatch):
    result = limited(tmp_path, monkeypatch, purpose="probe", max_steps=18)
    assert (result["steps"], result["state"], result["nonfinite"].get("located")) == (18, "failed", None)


@pytest.mark.parametrize(("largest", "culprit"), [(3e38, 905), (1e4, None), (float("nan"), None)])
def test_a_sample_that_reaches_far_beyond_the_others_is_the_culprit(largest, culprit):
    inputs, ids = torch.rand(8, 3), np.arange(900, 908)
    inputs[5, 1] = -largest
    found = outlier((inputs, torch.arange(8)), ids)
    assert (found and found["sample"]) == culprit
    assert found is None or (found["tensor"], found["usual"] < 1) == ("inputs", True)
