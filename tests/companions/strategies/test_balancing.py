"""Losses weighed by their uncertainty or by their gradients, beside the papers' formulas."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mltrainer
from mltrainer.companions.strategies.balancing import LOG_VARIANCES, Balancing, projected
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.shared_gradients import cosines, gramian
from mltrainer.tasks.strategies import Strategies
from mltrainer.tasks.strategy import MicroBatch, Training
from tests.tasks.tables.test_multitask import METRIC, SEVERAL, write_table
from tests.trainers.native.digits_runs import config

DRAWS = torch.Generator().manual_seed(4)
X = torch.randn(12, 3, generator=DRAWS)
# The second target is opposed to the first: one weight cannot be right for both.
Y = torch.stack([X[:, 0] * 3, -2 * X[:, 0] + X[:, 1]], 1)


class Both(mltrainer.Task):
    """Two quantities predicted by the same number, or by one of their own each."""

    terms = ("near", "far")

    def __init__(self, outputs: int = 1) -> None:
        self._outputs = outputs

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, self._outputs))

    def losses(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        each = (outputs - targets).square().mean(0)
        return {"far": each[1], "near": each[0]}

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()


def made(task: mltrainer.Task | None = None, **settings: Any) -> tuple[Strategies, Balancing, Training]:
    values: TrainingConfig = config({"strategies": [{"name": "balancing", **settings}]})
    task = task or Both()
    strategy = Balancing(values.strategies[0], "strategies.0", Path())  # type: ignore[arg-type]  # one of several kinds
    joined, model = Strategies([strategy]), task.model()
    training = Training(task, model, values, Path(), lambda _model: task.model(), lambda _count: None)
    joined.adapt(training)
    joined.begin(training)
    return joined, strategy, training


def micro(training: Training, y: Tensor = Y) -> MicroBatch:
    return MicroBatch((X, y), training.model(X), y)


def losses_of(training: Training, y: Tensor = Y) -> list[Tensor]:
    found = training.task.losses(training.model(X), y)
    return [found["near"], found["far"]]


def weights(training: Training) -> list[nn.Parameter]:
    return [p for name, p in training.model.named_parameters() if name != LOG_VARIANCES]


def flat(loss: Tensor, training: Training) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights(training), retain_graph=True)]).double()


# --- by uncertainty ---------------------------------------------------------------------------------


def test_a_learned_variance_weighs_each_loss_by_the_papers_formula():
    joined, _, training = made()
    found = micro(training)
    plain = training.task.loss(found.outputs, Y)
    assert joined.join(plain, found)[0].item() == pytest.approx(plain.item(), rel=1e-6)
    with torch.no_grad():
        training.model.get_parameter(LOG_VARIANCES).copy_(torch.tensor([0.7, -1.2]))
    near, far = (loss.item() for loss in losses_of(training))
    variances = torch.tensor([0.7, -1.2]).exp().tolist()
    # Kendall et al., equation 7, doubled and divided by the number of losses: L / (2 var) + log(deviation).
    paper = near / (2 * variances[0]) + 0.7 / 2 + far / (2 * variances[1]) - 1.2 / 2
    assert joined.join(plain, found)[0].item() == pytest.approx(2 * paper / 2, rel=1e-6)


def test_variances_that_are_learned_become_the_losses_so_that_each_counts_by_its_own_size():
    joined, _, training = made()
    variances = training.model.get_parameter(LOG_VARIANCES)
    optimizer = torch.optim.SGD([variances], lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        found = micro(training)
        joined.join(training.task.loss(found.outputs, Y), found)[0].backward()
        optimizer.step()
    assert variances.exp().tolist() == pytest.approx([loss.item() for loss in losses_of(training)], rel=1e-4)


def test_the_loss_that_is_told_is_the_tasks_own_with_each_of_its_losses_after_it():
    joined, _, training = made()
    with torch.no_grad():
        training.model.get_parameter(LOG_VARIANCES).fill_(3.0)
    found = micro(training)
    plain = training.task.loss(found.outputs, Y)
    loss, terms = joined.reported(joined.join(plain, found)[1])
    assert joined.terms == ["task", "near", "far"]
    assert [loss.item(), *terms.tolist()] == pytest.approx([v.item() for v in (plain, plain, *losses_of(training))])
    assert joined.shape == (4,)


def test_a_model_with_variances_takes_and_gives_the_state_of_the_tasks_own():
    joined, _, training = made()
    model, own = training.model, Both().model()
    assert torch.equal(model(X), own(X))
    plain = joined.plain(model)
    assert plain.keys() == own.state_dict().keys()
    with torch.no_grad():
        model.get_parameter(LOG_VARIANCES).fill_(3.0)
    model.load_state_dict({name: tensor + 1 for name, tensor in own.state_dict().items()})
    assert model.get_parameter(LOG_VARIANCES).tolist() == [3.0, 3.0]
    model.load_state_dict({**model.state_dict(), LOG_VARIANCES: torch.zeros(2)})
    assert model.get_parameter(LOG_VARIANCES).tolist() == [0.0, 0.0]
    joined.release(model)
    assert model.load_state_dict(own.state_dict()).missing_keys == []


# --- by gradients -----------------------------------------------------------------------------------


def test_opposed_gradients_are_each_projected_to_where_they_oppose_no_other():
    joined, _, training = made(method="gradients")
    found = micro(training)
    near, far = (flat(loss, training) for loss in losses_of(training))
    assert near @ far < 0
    # UPGrad of two: the mean of each one's part at right angles to the other (Quinton and Rey, section 3).
    expected = (near - (near @ far) / (far @ far) * far + far - (far @ near) / (near @ near) * near) / 2
    objective, _ = joined.join(training.task.loss(found.outputs, Y), found)
    torch.testing.assert_close(flat(objective, training), expected, rtol=2e-3, atol=2e-4)


def test_gradients_at_no_odds_are_those_of_the_mean_of_the_losses():
    joined, _, training = made(method="gradients")
    y = torch.stack([X[:, 0] * 3, X[:, 0] * 2], 1)
    found = micro(training, y)
    objective, _ = joined.join(training.task.loss(found.outputs, y), found)
    near, far = losses_of(training, y)
    assert torch.equal(objective.detach(), (0.5 * near + 0.5 * far).detach())


@pytest.mark.parametrize("aggregator", ["upgrad", "dualproj", "pcgrad", "mgda", "imtl_g", "aligned_mtl"])
def test_each_aggregator_makes_the_gradient_that_torchjds_makes_of_the_same_ones(aggregator):
    joined, _, training = made(method="gradients", aggregator=aggregator)
    rows = torch.stack([flat(loss, training) for loss in losses_of(training)])
    names = {"upgrad": "UPGrad", "dualproj": "DualProj", "pcgrad": "PCGrad", "mgda": "MGDA", "imtl_g": "IMTLG"}
    kind = getattr(importlib.import_module("torchjd.aggregation"), names.get(aggregator, "AlignedMTL"))
    given = {"projector": projected} if aggregator in ("upgrad", "dualproj") else {}
    found = micro(training)
    objective, _ = joined.join(training.task.loss(found.outputs, Y), found)
    torch.testing.assert_close(flat(objective, training), kind(**given)(rows), rtol=1e-3, atol=1e-4)


def test_a_projection_fulfils_the_conditions_of_its_optimum():
    draws = torch.Generator().manual_seed(9)
    for _ in range(20):
        rows = torch.randn(4, 3, generator=draws, dtype=torch.float64)
        inner = rows @ rows.T
        u = torch.rand(4, generator=draws, dtype=torch.float64)
        v = projected(u, inner)
        slope = (inner / inner.trace() + 1e-4 * torch.eye(4)) @ v
        # Karush, Kuhn and Tucker: no weight below its bound, no gradient opposed, and one of the two is exact.
        assert (v - u).min() >= 0
        assert slope.min() > -1e-9
        assert ((v - u) * slope).abs().max() < 1e-9
    assert torch.equal(projected(torch.eye(2), torch.zeros(2, 2)), torch.eye(2))


def test_what_one_loss_alone_reaches_is_no_place_where_gradients_meet():
    task = Both(outputs=2)
    _, _, training = made(task, method="gradients")
    model: Any = training.model
    inner = gramian(losses_of(training), weights(training))
    first = [torch.cat([g.flatten() for g in torch.autograd.grad(loss, [model[0].weight, model[0].bias], retain_graph=True)])
             for loss in losses_of(training)]  # fmt: skip
    expected = torch.stack(first) @ torch.stack(first).T
    torch.testing.assert_close(inner, expected.double())
    assert cosines(inner)[0, 1].item() == pytest.approx(torch.cosine_similarity(*first, 0).item(), rel=1e-5)


def test_a_gradient_that_is_not_finite_shows_as_one_and_stops_no_aggregator():
    for aggregator in ("upgrad", "aligned_mtl"):
        joined, _, training = made(method="gradients", aggregator=aggregator)
        with torch.no_grad():
            training.model.get_parameter("0.weight").fill_(float("inf"))
        found = micro(training)
        objective, _ = joined.join(training.task.loss(found.outputs, Y), found)
        assert not objective.isfinite()


def test_a_batch_is_differentiated_as_ever_after_the_gradients_were_compared():
    joined, _, training = made(method="gradients")
    found = micro(training)
    joined.join(training.task.loss(found.outputs, Y), found)[0].backward()
    assert all(p.grad is not None for p in training.model.parameters())


# --- trainings --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uncertainty", "gradients"])
def test_the_targets_of_a_table_are_weighed_and_told_one_by_one(tmp_path, method, monkeypatch):
    monkeypatch.chdir(write_table(tmp_path, 200))
    setting: dict[str, Any] = {**SEVERAL, "model": {"name": "mlp", "hidden": [8]}, "metric": METRIC, "epochs": 2}
    found = mltrainer.fit(**setting, strategies=[{"name": "balancing", "method": method}])
    plain = mltrainer.fit(**setting)
    (*_, last) = found.result["history"]
    assert [*last["terms"]] == ["task", "loss_price_eur", "loss_kind", "loss_stars"]
    each = [last["terms"][name] for name in [*last["terms"]][1:]]
    assert last["terms"]["task"] == pytest.approx(sum(each) / 3, rel=1e-5)
    assert found.model.state_dict().keys() == plain.model.state_dict().keys()
    assert any(not torch.equal(one, other) for one, other in zip(found.model.parameters(), plain.model.parameters(), strict=True))


class Normed(Both):
    """Has a norm without parameters of its own."""

    def samples(self) -> Any:
        return X.repeat(4, 1), Y.repeat(4, 1)

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 1))


@pytest.mark.slow
def test_a_norm_without_parameters_goes_on_measuring():
    found = mltrainer.fit(Normed(), epochs=2, batch_size=8, strategies=[{"name": "balancing"}])
    assert found.model.get_buffer("1.running_mean").abs().max() > 0


# --- refusals ---------------------------------------------------------------------------------------


class Named(Both):
    terms = ("near", "off")


class Repeated(Both):
    terms = ("near", "near")


class Reserved(Both):
    terms = ("task", "far")


class Silent(Both):
    losses = mltrainer.Task.losses


class Pair(Both):
    def losses(self, outputs: Tensor, targets: Tensor) -> Any:
        return {"near": (outputs - targets).square(), "far": outputs.mean()}


class Listed(Both):
    def losses(self, outputs: Tensor, targets: Tensor) -> Any:
        return [outputs.mean(), outputs.mean()]


class Constant(Both):
    def losses(self, outputs: Tensor, targets: Tensor) -> Any:
        return {"near": outputs.mean(), "far": targets.mean()}


def joined_once(task: mltrainer.Task) -> None:
    joined, _, training = made(task)
    joined.join(torch.zeros(()), micro(training))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Named(), "losses: expected near, off, found far, near"),
        (Silent(), r"the task names near, far in terms, and has no losses\(self"),
        (Repeated(), "the task names near, near; two names"),
        (Reserved(), "two terms of the loss would be named task"),
        (Pair(), r"losses for near: expected a scalar tensor, found a tensor \[12, 2\]"),
        (Listed(), "losses: expected near, far, found list"),
        (Constant(), "the loss far depends on nothing that is trained"),
    ],
)
def test_losses_that_are_not_as_named_are_refused(task, message):
    with pytest.raises(InputError, match=message):
        joined_once(task)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    with pytest.raises(InputError, match="torchjd is not installed") as caught:
        made(method="gradients")
    assert (caught.value.where, caught.value.hint) == ("strategies.0", 'pip install "mltrainer[multitask]"')


def test_weights_that_are_fixed_and_found_at_once_are_refused():
    several = {**SEVERAL, "task": {**SEVERAL["task"], "weights": {"kind": 2.0}}, "model": {"name": "mlp"}}
    with pytest.raises(ValueError, match=r"task\.weights fixes them: leave one out"):
        config({**several, "metric": METRIC, "strategies": [{"name": "balancing"}]})
