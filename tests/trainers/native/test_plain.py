"""Plain answers in a task's own loss: what each kind of loss lets a constant, a linear and a likening answer reach."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.diagnostics.signals import Run, verdict
from mltrainer.tasks.task import Task
from mltrainer.trainers.native.signals.plain import Probe, block_losses, plain_answers, probe_of, uses_targets

DRAWN = torch.Generator().manual_seed(0)
X = torch.randn(256, 5, generator=DRAWN)
NOISE = torch.randn(256, 1, generator=DRAWN)
LABELS = (X[:, 0] > 0).long()


class Measured(Task):
    """A loss alone."""

    def __init__(self, measure: Callable[[Any, Any], Tensor]) -> None:
        self.measure = measure

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return self.measure(outputs, targets)


def density(outputs: Tensor, targets: Tensor) -> Tensor:
    mean, log_size = outputs[:, :1], outputs[:, 1:]
    return (log_size + 0.5 * ((targets - mean) / log_size.exp()).square()).mean()


def answers(measure: Callable[[Any, Any], Tensor], targets: Tensor, width: int, given: Tensor = X, head: Any = None) -> Any:
    """Return what plain answers to targets reach, of 160 samples for 96 others."""
    places = targets.shape[1:] if targets.dtype == torch.int64 else ()
    outputs = (head or (lambda free: free))(0.01 * torch.randn(len(targets), *places, width, generator=DRAWN))
    probe = probe_of((given,), outputs, targets)
    return plain_answers(Measured(measure), probe.at(slice(0, 160)), probe.at(slice(160, 256)), "loss")


def means(found: dict[str, Any]) -> dict[str, float]:
    return {name: sum(losses) / len(losses) for name, losses in found["losses"].items()}


def test_of_classes_the_constant_answer_costs_their_entropy_and_a_linear_one_tells_them():
    found = answers(functional.cross_entropy, LABELS, 2)
    assert means(found)["constant"] == pytest.approx(math.log(2), abs=0.02)
    assert means(found)["linear"] < 0.3
    assert 0 <= found["floor"] < 0.01


@pytest.mark.parametrize("size", [1e7, 1e12])
def test_outputs_that_have_exploded_do_not_hide_what_the_loss_can_reach(size):
    found = answers(functional.cross_entropy, LABELS, 2, head=lambda free: 0.6 * size + size * free)
    assert means(found)["constant"] == pytest.approx(math.log(2), abs=0.02)
    assert 0 <= found["floor"] < 0.01


def test_of_noise_no_answer_goes_beyond_the_constant_one():
    found = answers(functional.mse_loss, NOISE, 1)
    assert {verdict(losses, found["losses"]["constant"]) for losses in found["losses"].values()} == {"level"}


def test_probabilities_stay_some():
    by_likelihood = answers(lambda p, y: -p.gather(1, y[:, None]).log().mean(), LABELS, 2, head=lambda free: free.softmax(-1))
    by_halves = answers(lambda p, y: functional.binary_cross_entropy(p[:, 0], y.float()), LABELS, 1, head=torch.sigmoid)
    by_logarithms = answers(functional.nll_loss, LABELS, 2, head=lambda free: functional.log_softmax(free, -1))
    for found in (by_likelihood, by_halves, by_logarithms):
        assert means(found)["constant"] == pytest.approx(math.log(2), abs=0.02)
        assert 0 <= found["floor"] < 0.01


def test_the_likelihood_of_a_density_falls_below_zero():
    found = answers(density, X[:, :1] + 0.1 * NOISE, 2)
    assert found["floor"] < 0
    assert means(found)["linear"] < means(found)["constant"] - 0.4


def test_tokens_are_answered_by_the_one_that_stands_there():
    tokens = torch.randint(0, 7, (256, 9), generator=DRAWN)
    found = answers(lambda o, t: functional.cross_entropy(o.flatten(0, 1), t.flatten()), (tokens + 1) % 7, 7, tokens)
    assert means(found)["constant"] == pytest.approx(math.log(7), abs=0.05)
    assert means(found)["linear"] < 0.3


def test_of_what_is_given_back_only_the_constant_answer_says_something():
    assert [*answers(functional.mse_loss, X, 5)["losses"]] == ["constant"]


def test_outputs_of_several_parts_have_no_known_end():
    parts = (0.1 * X, 0.1 * NOISE)
    probe = Probe(X, parts, X)
    task = Measured(lambda outputs, targets: (outputs[0] - targets).square().mean() + outputs[1].square().mean())
    found = plain_answers(task, probe, probe, "loss")
    assert (found["floor"], [*found["losses"]]) == (None, ["constant"])
    assert means(found)["constant"] == pytest.approx(float(X.var(0, correction=0).mean()), abs=0.02)


def test_a_loss_that_draws_or_refuses_is_not_asked():
    assert answers(lambda o, t: functional.mse_loss(functional.dropout(o), t), NOISE, 1) is None
    assert answers(lambda o, t: torch.tensor(math.nan), NOISE, 1) is None
    assert probe_of((X,), LABELS, LABELS) is None


def test_answers_about_pairs_of_a_batchs_samples_are_not_asked_for():
    task, likes = Measured(functional.mse_loss), X @ X.T
    assert plain_answers(task, Probe(X, likes, likes), Probe(X[:96], likes[:96, :96], likes[:96, :96]), "loss") is None


def test_what_a_loss_holds_gets_no_gradient():
    weight = torch.ones(1, requires_grad=True)
    assert answers(lambda o, t: functional.mse_loss(weight * o, t), NOISE, 1) is not None
    assert weight.grad is None


def test_losses_in_blocks_have_the_mean_of_the_whole():
    losses = block_losses(Measured(functional.mse_loss), 0 * NOISE, NOISE)
    assert losses is not None
    assert (len(losses), sum(losses) / 16) == (16, pytest.approx(float(NOISE.square().mean()), rel=1e-5))
    assert block_losses(Measured(functional.mse_loss), NOISE[:20], NOISE[:20]) is None  # too few


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (functional.mse_loss, True),
        (lambda outputs, targets: outputs.square().mean(), False),
        (lambda outputs, targets: functional.mse_loss(functional.dropout(outputs), targets), None),
    ],
)
def test_whether_a_loss_looks_at_its_targets(measure, expected):
    assert uses_targets(Measured(measure), torch.zeros(256, 1), NOISE) is expected
    assert uses_targets(Measured(lambda outputs, targets: outputs.mean()), NOISE, None) is None


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (nn.functional.cross_entropy, True),
        (lambda outputs, targets: outputs.square().mean() + 0 * targets.sum(), False),
    ],
    ids=["classes", "none"],
)
def test_whether_a_loss_looks_at_targets_is_seen_where_these_are_all_the_same_too(measure, expected):
    assert uses_targets(Measured(measure), torch.randn(32, 3), torch.zeros(32, dtype=torch.int64)) is expected


class Told(Measured):
    """Two classes by a linear model."""

    def __init__(self) -> None:
        super().__init__(functional.cross_entropy)

    def samples(self) -> tuple[Tensor, Tensor]:
        return X, LABELS

    def model(self) -> nn.Module:
        return nn.Linear(5, 2)


@pytest.mark.slow
def test_a_run_of_ones_own_task_stands_beside_them():
    setting = {"epochs": 20, "batch_size": 16, "early_stopping": None, "optimizer": {"name": "adamw", "lr": 0.05}}
    run = Run.of(mltrainer.fit(Told(), tell=lambda _event: None, **setting).result)
    assert run.verdicts["constant"] == "ahead"
    assert [*run.plain.losses] == ["constant", "linear", "likeness"]
    assert all(len(row.validation.losses or []) == 16 for _, row in run.seen)
