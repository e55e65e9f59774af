"""Contrastive learning beside the papers' formulas, the linear probe, and the neighbours that are measured."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.companions.strategies.contrastive import Contrastive
from mltrainer.companions.strategies.inputs import swapped
from mltrainer.configs.pages import diagnostic_page
from mltrainer.configs.strategies import Contrastive as Settings
from mltrainer.diagnostics.rules import RULES
from mltrainer.diagnostics.signals import Run
from mltrainer.errors import InputError
from mltrainer.tasks.samples import Samples
from mltrainer.tasks.strategy import MicroBatch, Training
from mltrainer.trainers.native.evaluation import neighbour_metrics
from tests.trainers.native.digits_runs import config

DRAWS = torch.Generator().manual_seed(3)
X, Y = torch.randn(12, 8, generator=DRAWS), torch.arange(12) % 3


class Noisy(mltrainer.Task):
    """Rows into classes; a view is a row with noise."""

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(8, 10), nn.Tanh(), nn.Linear(10, 3))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def view(self, batch: Any) -> Any:
        return (batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1])


def made(task: Noisy | None = None, **changes: Any) -> tuple[Contrastive, Training]:
    sizes = {"batch_size": changes.pop("batch_size", 12)}
    settings = config({"strategies": [{"name": "contrastive", "projection": 6, **changes}], **sizes})
    task = task or Noisy()
    strategy = Contrastive(settings.strategies[0], "strategies.0", Path())  # type: ignore[arg-type]  # one of several kinds
    training = Training(task, task.model(), settings, Path(), lambda _model: task.model(), lambda _count: None)
    strategy.adapt(training, ())
    strategy.begin(training)
    return strategy, training


def projections(training: Training) -> tuple[Tensor, Tensor]:
    """Return the projections of two views, as the same draws give them."""
    torch.manual_seed(8)
    model: Any = training.model
    views = [X + 0.1 * torch.randn_like(X) for _ in range(2)]
    first, second = (model[2].beside(torch.tanh(model[0](view))) for view in views)
    return first, second


def term(strategy: Contrastive, training: Training) -> Tensor:
    torch.manual_seed(8)
    return strategy.term(MicroBatch((X, Y), training.model(X), Y))


# --- the loss ---------------------------------------------------------------------------------------


def test_simclr_is_the_papers_formula():
    strategy, training = made(temperature=0.3)
    scaled = functional.normalize(torch.cat(projections(training)), dim=1)
    similar = (scaled @ scaled.T / 0.3).fill_diagonal_(-torch.inf)
    pairs = torch.cat([torch.arange(12, 24), torch.arange(12)])
    expected = functional.cross_entropy(similar, pairs)
    assert term(strategy, training).item() == pytest.approx(expected.item(), rel=1e-5)
    library = NTXentLoss(temperature=0.3)(torch.cat(projections(training)), torch.arange(12).repeat(2))
    assert expected.item() == pytest.approx(library.item(), rel=1e-5)


def test_supcon_is_the_papers_formula():
    strategy, training = made(method="supcon", temperature=0.3)
    scaled, labels = functional.normalize(torch.cat(projections(training)), dim=1), torch.cat([Y, Y])
    logits = (scaled @ scaled.T / 0.3).fill_diagonal_(-torch.inf).log_softmax(1)
    alike = (labels[:, None] == labels).fill_diagonal_(False)
    expected = -(torch.where(alike, logits, 0.0).sum(1) / alike.sum(1)).mean()
    assert term(strategy, training).item() == pytest.approx(expected.item(), rel=1e-5)


def test_batch_hard_leaves_of_each_sample_its_farthest_like_and_its_nearest_other():
    strategy, training = made(method="supcon", temperature=0.3, miner="batch_hard")
    scaled, labels = functional.normalize(torch.cat(projections(training)), dim=1), torch.cat([Y, Y])
    similar, alike = scaled @ scaled.T / 0.3, labels[:, None] == labels
    farthest = similar.masked_fill(~alike | torch.eye(24, dtype=torch.bool), torch.inf).amin(1)
    nearest = similar.masked_fill(alike, -torch.inf).amax(1)
    expected = -(farthest - torch.stack([farthest, nearest]).logsumexp(0)).mean()
    assert term(strategy, training).item() == pytest.approx(expected.item(), rel=1e-5)


def test_multi_similarity_leaves_pairs_that_are_told_apart_by_less_than_its_margin():
    strategy, training = made(method="supcon", temperature=0.3, miner="multi_similarity")
    scaled, labels = functional.normalize(torch.cat(projections(training)), dim=1), torch.cat([Y, Y])
    similar, alike = scaled @ scaled.T, labels[:, None] == labels
    likes, others = alike & ~torch.eye(24, dtype=torch.bool), ~alike
    hardest, nearest = similar.masked_fill(~likes, torch.inf).amin(1), similar.masked_fill(~others, -torch.inf).amax(1)
    likes &= similar - 0.1 < nearest[:, None]
    others &= similar + 0.1 > hardest[:, None]
    logits = (similar / 0.3).masked_fill(~(likes | others), -torch.inf)
    each = [-(logits[n, likes[n]] - logits[n].logsumexp(0)).mean() for n in range(24) if likes[n].any()]
    assert term(strategy, training).item() == pytest.approx(torch.stack(each).mean().item(), rel=1e-4)
    assert (likes | others).sum() < 24 * 23
    with pytest.raises(ValueError, match="which method: simclr does not see"):
        Settings.model_validate({"name": "contrastive", "miner": "batch_hard"})


@pytest.mark.parametrize(("part", "miner"), [("losses", None), ("miners", "batch_hard")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, part, miner):
    monkeypatch.setitem(sys.modules, f"pytorch_metric_learning.{part}", None)
    with pytest.raises(InputError, match=f"pytorch-metric-learning is not installed, which has the {part}") as caught:
        made(method="supcon", miner=miner)
    assert (caught.value.where, caught.value.hint) == ("strategies.0", 'pip install "mltrainer[contrastive]"')


def test_vicreg_is_the_papers_formula():
    strategy, training = made(method="vicreg")
    first, second = projections(training)

    def spread(z: Tensor) -> Tensor:
        return functional.relu(1 - (z.var(0) + 1e-4).sqrt()).mean()

    def shared(z: Tensor) -> Tensor:
        covariance = (z - z.mean(0)).T @ (z - z.mean(0)) / (len(z) - 1)
        return (covariance.fill_diagonal_(0) ** 2).sum() / z.shape[1]

    # The library halves the variances' part, as the paper's code does.
    expected = (
        25 * functional.mse_loss(first, second) + 25 * (spread(first) + spread(second)) / 2 + shared(first) + shared(second)
    )
    assert term(strategy, training).item() == pytest.approx(expected.item(), rel=1e-4)


def test_labels_decide_no_weight_but_the_last_layers():
    _, training = made()
    training.task.loss(training.model.train()(X), Y).backward()
    model: Any = training.model
    assert model[0].weight.grad is None
    assert model[2].base_layer.weight.grad is not None
    joint, training = made(probe=False)
    training.task.loss(training.model.train()(X), Y).backward()
    assert training.model[0].weight.grad is not None  # type: ignore[index]  # a Sequential
    assert term(joint, training).requires_grad


def test_views_are_drawn_anew_and_the_same_again_at_their_address():
    strategy, training = made()
    one, again = term(strategy, training), term(strategy, training)
    torch.manual_seed(9)
    other = strategy.term(MicroBatch((X, Y), training.model(X), Y))
    assert one.item() == again.item() != other.item()


def test_a_share_of_a_rows_cells_comes_from_the_same_column_of_other_rows():
    x = torch.arange(4000.0).view(1000, 4)
    torch.manual_seed(0)
    found, which = swapped(x, 0.4)
    assert not (found != x)[~which].any()
    assert float(which.float().mean()) == pytest.approx(0.4, abs=0.03)
    assert torch.equal(found % 4, x % 4)  # the column


# --- the model --------------------------------------------------------------------------------------


def test_the_delivered_state_is_the_tasks_own_and_an_adapted_model_takes_it():
    strategy, training = made()
    own = Noisy().model()
    plain = strategy.plain(training.model)
    assert plain.keys() == own.state_dict().keys()
    changed = {name: tensor + 1 for name, tensor in plain.items()}
    before = copy.deepcopy(training.model.state_dict())
    training.model.load_state_dict(changed, strict=True)
    own.load_state_dict(changed)
    assert torch.equal(training.model.eval()(X), own.eval()(X))
    kept = {name: tensor for name, tensor in training.model.state_dict().items() if "beside" in name}
    assert kept
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept.items())
    strategy.release(training.model)
    assert training.model.state_dict().keys() == own.state_dict().keys()


class Bare(Noisy):
    def model(self) -> nn.Module:
        return nn.Linear(8, 3)


class Shallow(Noisy):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(8, 3))


class Still(Noisy):
    view = mltrainer.Task.view


class Sequences(Noisy):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.Unflatten(1, (2, 4)), nn.Linear(4, 3))


def test_models_without_features_are_refused():
    with pytest.raises(InputError, match="no linear layer within"):
        made(Bare())
    with pytest.raises(InputError, match="no linear layer's name matches 'nothing'"):
        made(head="nothing")
    with pytest.raises(InputError, match="nothing to learn before its last layer"):
        made(Shallow())
    strategy, training = made(Sequences())
    with pytest.raises(InputError, match=r"the last layer reads \[12, 2, 4\]"):
        term(strategy, training)


def test_views_that_are_the_same_and_targets_that_are_no_classes_are_refused():
    strategy, training = made(Still())
    with pytest.raises(InputError, match="two views of a sample are the same"):
        term(strategy, training)
    strategy, training = made(method="supcon")
    for targets in (torch.rand(12), torch.rand(12, 3)):
        with pytest.raises(InputError, match="supcon draws samples of one class together"):
            strategy.term(MicroBatch((X, targets), training.model(X), targets))
    with pytest.raises(ValueError, match="augment switches nothing on"):
        Settings.model_validate({"name": "contrastive", "augment": {}})
    with pytest.raises(InputError, match="a micro-batch of one sample"):
        made(batch_size=1)


@pytest.mark.parametrize("method", ["simclr", "vicreg", "supcon"])
def test_a_sample_alone_at_the_end_of_an_epoch_has_no_term(method):
    strategy, training = made(method=method)
    found = strategy.term(MicroBatch((X[:1], Y[:1]), training.model(X[:1]), Y[:1]))
    found.backward()
    assert found.item() == 0


def test_alterations_that_a_view_cannot_have_are_refused():
    with pytest.raises(ValueError, match="mix samples, and a view is of one"):
        Settings.model_validate({"name": "contrastive", "augment": {"mixup": 0.2}})
    with pytest.raises(InputError, match="only images are altered"):
        made(augment={"crop": 1})
    digits = {"task": {"kind": "image_classification"}, "data": {"source": "sklearn:digits"}, "model": {"name": "mlp"}}
    with pytest.raises(InputError, match="two views of an image need augmentation"):
        mltrainer.fit(digits.pop("task"), **digits, strategies=[{"name": "contrastive"}], tell=lambda _event: None)


# --- neighbours -------------------------------------------------------------------------------------


def neighbours(features: Any, x: Tensor, y: Tensor) -> dict[str, float]:
    samples = Samples(np.arange(len(x)), (x, y))
    return neighbour_metrics(Noisy(), config({}), features, samples, samples, "validation")


def test_neighbours_tell_classes_that_lie_apart_and_a_spread_that_is_whole():
    y = torch.arange(200) % 4
    x = functional.one_hot(y, 4).float() + 0.05 * torch.randn(200, 4, generator=DRAWS)
    assert neighbours(lambda batch: batch[0], x, y)["knn_accuracy"] == 1.0
    everywhere = torch.randn(2000, 16, generator=DRAWS)
    assert neighbours(lambda batch: batch[0], everywhere, torch.arange(2000) % 4)["feature_spread"] == pytest.approx(1, abs=0.02)


def test_features_that_are_all_the_same_have_no_spread_and_tell_no_class():
    y = torch.arange(200) % 4
    found = neighbours(lambda batch: torch.ones(len(batch[0]), 5), torch.randn(200, 4, generator=DRAWS), y)
    assert found["feature_spread"] < 1e-6
    assert found["knn_accuracy"] <= 0.3


def test_values_have_no_class_to_be_told():
    assert [*neighbours(lambda batch: batch[0], X, torch.rand(12))] == ["feature_spread"]


def spread_of(values: list[float]) -> str:
    run = Run.of({"history": [{"epoch": 1, "step": 1, "validation": {"feature_spread": value}} for value in values]})
    return RULES["feature_collapse"](run, **diagnostic_page("feature_collapse", None).thresholds).state


def test_features_that_collapse_at_the_end_are_told_and_healthy_ones_are_not():
    assert spread_of([0.4, 0.2, 0.01, 0.01]) == "fired"
    assert spread_of([0.01, 0.2, 0.4, 0.4]) == "clear"
    assert RULES["feature_collapse"](Run.of({"history": []}), spread=0.05).state == "not_applicable"
