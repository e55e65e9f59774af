"""Averaged weights are the averages of their papers, are what is measured and delivered, and leave training alone."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from mltrainer.checkpointing.format import load, snapshot
from mltrainer.checkpointing.weights import delivered, weights_sha256
from mltrainer.configs.averaging import Ema, Swa
from mltrainer.tasks.opening import OpenTask
from mltrainer.trainers.native.data.addresses import Plan
from mltrainer.trainers.native.optimization.averages import Average, delivered_state, holding
from mltrainer.trainers.native.optimization.optimizers import build_optimizer, own_average
from mltrainer.trainers.native.optimization.precision import decide
from mltrainer.trainers.native.parallel.partition import Partition
from mltrainer.trainers.native.ranks import Ranks
from tests.trainers.native.digits_runs import TASK, config, make, train

PLAN = Plan(samples=40, batch_size=10, accumulate=1, epochs=4)
NOT_CUT = Partition(Ranks(), {}, {})


def averages(averaging: dict[str, object], steps: int) -> tuple[Average, list[Tensor]]:
    """Return the average over some steps of a weight that is drawn anew in each, and those weights."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False)
    average, seen = Average(model, config({"averaging": averaging}), PLAN, NOT_CUT), []
    for step in range(1, steps + 1):
        nn.init.normal_(model.weight)
        average.update(step)
        seen.append(model.weight.detach().clone())
    return average, seen


def test_an_exponential_average_keeps_its_share_of_the_old():
    average, seen = averages({"name": "ema", "decay": 0.5}, 16)
    expected = seen[0]
    for count, weight in enumerate(seen[1:], 1):
        keep = min(0.5, (1 + count) / (10 + count))
        expected = keep * expected + (1 - keep) * weight
    assert torch.allclose(average.tensors["weight"], expected, atol=1e-6)


def test_stochastic_weight_averaging_is_the_mean_over_the_last_epochs_ends():
    average, seen = averages({"name": "swa", "start": 0.5}, 16)
    assert average.count == 2
    assert torch.allclose(average.tensors["weight"], (seen[11] + seen[15]) / 2, atol=1e-6)


def test_an_average_of_another_kind_is_left_behind():
    ema, _ = averages({"name": "ema", "decay": 0.5}, 16)
    swa, _ = averages({"name": "swa", "start": 0.5}, 0)
    again, _ = averages({"name": "ema", "decay": 0.9}, 0)
    swa.load_state_dict(ema.state_dict())
    again.load_state_dict(ema.state_dict())
    assert (swa.count, swa.tensors) == (0, {})
    assert (again.count, torch.equal(again.tensors["weight"], ema.tensors["weight"])) == (16, True)


def test_which_steps_enter():
    assert [step for step in range(1, 17) if Swa(start=0.75).is_due(step, 16, 4)] == [16]
    assert [step for step in range(1, 17) if Swa(start=0.0).is_due(step, 16, 4)] == [4, 8, 12, 16]
    assert all(Ema().is_due(step, 16, 4) for step in range(1, 17))
    assert not Swa(start=0.29).is_due(29, 100, 1)
    assert Swa(start=0.29).is_due(30, 100, 1)


def fail_within(model: nn.Module, seen: list[str]) -> None:
    with holding(model, {name: tensor + 1 for name, tensor in model.state_dict().items()}):
        seen.append(weights_sha256(model.state_dict()))
        raise RuntimeError("within")


def test_a_model_that_held_another_state_has_its_own_again_even_after_an_error():
    model, seen = nn.BatchNorm1d(2), []
    before = weights_sha256(model.state_dict())
    with pytest.raises(RuntimeError, match="within"):
        fail_within(model, seen)
    assert seen != [before]
    assert weights_sha256(model.state_dict()) == before


@pytest.mark.parametrize("optimizer", [{"name": "schedule_free"}, {"name": "sgd", "lookahead": {}}])
def test_two_averages_at_once_are_refused(optimizer):
    with pytest.raises(ValidationError, match="averaging does not go with"):
        config({"averaging": {"name": "ema"}, "optimizer": optimizer})


def checkpoint(root: Path) -> dict[str, dict[str, Tensor]]:
    return load(root / ".mltrainer/runs/run/checkpoints/step-00000012")[0]


@pytest.mark.slow
@pytest.mark.parametrize("averaging", [{"name": "ema", "decay": 0.9}, {"name": "swa", "start": 0.0}])
def test_training_cannot_notice_that_its_weights_are_averaged(tmp_path, averaging):
    chosen = {"epochs": 2, "early_stopping": None}
    plain, averaged = train(make(tmp_path / "plain"), **chosen), train(make(tmp_path / "mean"), averaging=averaging, **chosen)
    assert averaged["weights_sha256"] == plain["weights_sha256"]
    assert averaged["history"][-1]["trained"] == plain["history"][-1]["validation"]
    assert averaged["history"][-1]["validation"] != plain["history"][-1]["validation"]
    tree = checkpoint(tmp_path / "mean")
    assert weights_sha256(tree["model"]) == weights_sha256(checkpoint(tmp_path / "plain")["model"])
    assert weights_sha256(delivered(tree)) != weights_sha256(tree["model"])


@pytest.mark.slow
def test_batch_norm_statistics_of_a_mean_of_weights_are_measured_over_the_training_samples(tmp_path):
    train(make(tmp_path), averaging={"name": "swa", "start": 0.0}, epochs=2, early_stopping=None)
    tree = checkpoint(tmp_path)
    mean = tree["average"]["tensors"]
    found = delivered(tree)
    assert torch.equal(found["1.weight"], mean["1.weight"])
    assert not torch.equal(found["2.running_mean"], mean["2.running_mean"])
    assert not torch.equal(found["2.running_mean"], tree["model"]["2.running_mean"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [{"averaging": {"name": "swa", "start": 0.0}}, {"optimizer": {"name": "schedule_free"}}], ids=str
)
def test_statistics_behind_a_dropout_are_the_same_with_any_number_of_workers(tmp_path, chosen):
    found = []
    for workers in (0, 2):
        root = make(tmp_path / str(workers))
        (root / "digits_task.py").write_text(
            TASK.replace("nn.Flatten(), nn.Linear(64, 32)", "nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, 32)")
        )
        found.append(train(root, workers=(workers,), epochs=2, early_stopping=None, **chosen)["history"][-1]["validation"])
    assert found[0] == found[1]


class Tied(nn.Module):
    """Embeds and projects with one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.project = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        self.project.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.project(self.embed(tokens))


@pytest.mark.parametrize("optimizer", [{"name": "schedule_free"}, {"name": "adamw", "lookahead": {"k": 5}}], ids=str)
def test_tied_weights_are_delivered_as_they_were_measured(optimizer):
    chosen = config({"optimizer": optimizer})
    model, tokens = Tied(), torch.arange(8)
    updating = build_optimizer(chosen.optimizer, model)
    for _ in range(7):
        updating.zero_grad()
        nn.functional.cross_entropy(model(tokens), tokens.flip(0)).backward()
        updating.step()
    state = delivered_state(cast(OpenTask, None), model, chosen, Average(model, chosen, PLAN, NOT_CUT), own_average(updating))
    assert state is not None
    with holding(model, state):
        measured = model.embed.weight.detach().clone()
    assert all(torch.equal(tensor, measured) for tensor in snapshot(state).tree.values())
    assert not torch.equal(model.embed.weight, measured)


class Assigning(nn.Module):
    """Keeps its mean as a buffer, and its weight within limits, by assigning new tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * x
        self.weight.data = (self.weight + x).clamp(-1, 1)
        return self.weight


def test_what_a_model_assigns_anew_is_averaged_as_it_is_now():
    model = Assigning()
    average, seen = Average(model, config({"averaging": {"name": "ema", "decay": 0.5}}), PLAN, NOT_CUT), []
    for step in range(1, 5):
        model(torch.full((3,), 0.1 * step))
        average.update(step)
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    for name, tensor in average.tensors.items():
        expected = seen[0][name]
        for count, state in enumerate(seen[1:], 1):
            keep = min(0.5, (1 + count) / (10 + count))
            expected = keep * expected + (1 - keep) * state[name]
        assert torch.allclose(tensor, expected), name


# --- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "capability", "chosen", "reason"),
    [
        ("auto", None, "fp32", "on a CPU"),
        ("auto", (9, 0), "bf16", "no loss scaling is needed"),
        ("auto", (7, 5), "fp16", "the loss is scaled"),
        ("auto", (6, 1), "fp32", "no units"),
        ("fp16", (9, 0), "fp16", "the config says so"),
    ],
)
def test_precision_auto_takes_what_the_device_can_do_and_says_why(asked, capability, chosen, reason):
    found = decide(asked, capability)
    assert (found.asked, found.chosen) == (asked, chosen)
    assert reason in found.reason
