"""Losses that are the mean of their parts' losses, and losses that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.tasks.samples import Samples
from mltrainer.trainers.native.loss_parts import require_mean, unequal
from tests.projects import PROJECT
from tests.toys import Wired

CONFIG = TrainingConfig.model_validate({**PROJECT, "name": "x", "batch_size": 8})
SEVERAL = CONFIG.model_copy(update={"accumulate": 4})
G = torch.Generator().manual_seed(0)
X = torch.randn(64, 6, generator=G)
CLASSES = torch.arange(64) * 3 // 64 % 3  # sorted, as data often are
WEIGHTS = torch.tensor([1.0, 5.0, 0.2])
VALUES = torch.randn(64, 3, generator=G)
TOKENS = torch.randint(1, 3, (64, 6), generator=G).masked_fill(torch.arange(6) >= torch.arange(64)[:, None] % 6 + 1, -100)
MASKS = (torch.rand(64, 3, generator=G) < 0.4).float()

Loss = Callable[[Any, Any], Tensor]


class Own(mltrainer.Task):
    """A task with a loss, and maybe with a number of items, over a linear model."""

    def __init__(self, loss: Loss, items: Callable[[Any], Any] | None = None) -> None:
        self._loss, self._items = loss, items

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return self._loss(outputs, targets)

    def loss_items(self, targets: Any) -> Any:
        return super().loss_items(targets) if self._items is None else self._items(targets)


def of_each_token() -> Wired:
    """Return a model that tells the class of each of six tokens."""
    return Wired(lambda model, x: model.embed(x[..., None]), embed=nn.Linear(1, 3))


def linear() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(6, 3)


def found(loss: Loss, targets: Tensor, model: nn.Module | None = None, items: Any = None) -> Any:
    torch.manual_seed(1)
    return unequal(Own(loss, items), model or linear(), samples(targets), CONFIG)


def samples(targets: Tensor) -> Samples:
    return Samples(np.arange(64), tensors=(X, targets))


def per_token(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=-100)


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, WEIGHTS.to(outputs.dtype))


def masked(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs - 1).square() * targets).sum() / targets.sum()


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    costs = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return costs.sum() / targets.sum().clamp_min(1)


def contrastive(outputs: Tensor, _targets: Tensor) -> Tensor:
    near = functional.normalize(outputs) @ functional.normalize(outputs).T
    return functional.cross_entropy(near * 5, torch.arange(len(outputs)))


def dice(outputs: Tensor, targets: Tensor) -> Tensor:
    shares = outputs.sigmoid()
    return 1 - 2 * (shares * targets).sum() / (shares.sum() + targets.sum())


MEANS: dict[str, tuple[Loss, Tensor]] = {
    "cross-entropy": (functional.cross_entropy, CLASSES),
    "squared error": (functional.mse_loss, VALUES),
    "huber": (functional.huber_loss, VALUES),
    "a sample's weight, by the number of samples": (
        lambda o, t: functional.cross_entropy(o, t, WEIGHTS.to(o.dtype), reduction="none").mean(),
        CLASSES,
    ),
    "smoothed labels": (lambda o, t: functional.cross_entropy(o, t, label_smoothing=0.1), CLASSES),
    "a penalty of its own beside it": (lambda o, t: functional.mse_loss(o, t) + 0.1, VALUES),
    "binary": (lambda o, t: functional.binary_cross_entropy(o.sigmoid(), t), MASKS),
    "batchmean": (lambda o, t: functional.kl_div(o.log_softmax(1), t.softmax(1), reduction="batchmean"), VALUES),
}
NO_MEANS: dict[str, tuple[Loss, Tensor]] = {
    "class weights": (weighted, CLASSES),
    "masked pixels": (masked, MASKS),
    "contrastive": (contrastive, CLASSES),
    "by the positives": (focal, MASKS),
    "sum": (lambda o, t: functional.mse_loss(o, t, reduction="sum"), VALUES),
    "dice": (dice, MASKS),
    "root": (lambda o, t: functional.mse_loss(o, t).sqrt(), VALUES),
    "a batch's own spread": (lambda o, t: functional.mse_loss(o, t) / o.std(), VALUES),
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_samples_is_the_mean_of_its_parts(name):
    assert found(*MEANS[name]) is None


@pytest.mark.parametrize("name", NO_MEANS)
def test_what_is_no_mean_over_samples_is_told(name):
    assert found(*NO_MEANS[name]).counts is None


def test_the_numbers_are_those_of_the_two_halves():
    model, chosen = linear(), torch.linspace(0, 63, 32).long()
    with torch.no_grad():
        outputs = model(X[chosen]).double()
        expected = weighted(outputs, CLASSES[chosen])
        halves = [weighted(outputs[half], CLASSES[chosen][half]) for half in (slice(16), slice(16, 32))]
    one = found(weighted, CLASSES, model)
    assert (one.whole, one.parts, one.sizes) == (pytest.approx(float(expected)), pytest.approx(float(sum(halves) / 2)), (16, 16))


def test_tokens_that_count_are_found_and_what_counts_them_makes_it_right():
    assert found(per_token, TOKENS, of_each_token()).counts == "(targets != -100).sum()"
    assert found(per_token, TOKENS, of_each_token(), lambda targets: (targets != -100).sum()) is None
    assert found(weighted, CLASSES, items=lambda targets: WEIGHTS[targets].sum()) is None
    assert found(masked, MASKS, items=lambda targets: targets.sum()) is None


def test_what_a_model_draws_or_takes_from_the_batch_is_not_the_losses_fault():
    normed = nn.Sequential(linear(), nn.BatchNorm1d(3), nn.Dropout(0.5))
    assert found(functional.mse_loss, VALUES, normed) is None
    by_batch = nn.Sequential(linear(), nn.BatchNorm1d(3, track_running_stats=False))
    assert found(functional.mse_loss, VALUES, by_batch) is None
    assert found(lambda o, t: functional.mse_loss(functional.dropout(o), t), VALUES) is None


def test_a_loss_that_counts_its_calls_is_not_judged():
    calls: list[int] = []

    def warming(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        return functional.mse_loss(outputs, targets) * len(calls)

    assert found(warming, VALUES) is None


def flat(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets.flatten(), ignore_index=-100)


def test_outputs_that_do_not_lie_sample_by_sample_are_computed_part_by_part():
    assert found(flat, TOKENS, nn.Sequential(of_each_token(), nn.Flatten(0, 1))).counts == "(targets != -100).sum()"
    assert found(flat, TOKENS, nn.Sequential(of_each_token(), nn.Flatten(0, 1)), lambda targets: (targets != -100).sum()) is None


def test_with_one_micro_batch_it_is_a_warning_and_with_several_it_is_refused():
    torch.manual_seed(1)
    (said,) = require_mean(Own(per_token), of_each_token(), samples(TOKENS), CONFIG)
    assert said.severity == "warning"
    assert "def loss_items(self, targets): return (targets != -100).sum()" in said.what
    with pytest.raises(InputError, match=r"accumulate: 4 would not train what a batch of 32 does[^$]*def loss_items"):
        require_mean(Own(per_token), of_each_token(), samples(TOKENS), SEVERAL)
    with pytest.raises(InputError, match=r"take batch_size: 32 with accumulate: 1"):
        require_mean(Own(contrastive), linear(), samples(CLASSES), SEVERAL)
    splits = CONFIG.model_copy(update={"on_out_of_memory": "split"})
    with pytest.raises(InputError, match=r"on_out_of_memory: split would not train what a batch of 8 does") as caught:
        require_mean(Own(per_token), of_each_token(), samples(TOKENS), splits)
    assert caught.value.where == "on_out_of_memory"
    for config in (SEVERAL, splits):
        assert require_mean(Own(functional.cross_entropy), linear(), samples(CLASSES), config) == []


def test_a_model_and_the_generators_are_left_as_they_were():
    model = nn.Sequential(linear(), nn.BatchNorm1d(3))
    before, drawn = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    require_mean(Own(functional.mse_loss), model, samples(VALUES), CONFIG)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
