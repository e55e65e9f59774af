"""Surroundings: eigenvalues beside exact ones, directions as large as the weights, and a model that is as it was afterwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mltrainer.companions.questions.measurements.loss_landscape import (
    Surface,
    joined,
    lanczos,
    norm,
    sharpness,
    spread,
)
from tests.toys import Toy


@pytest.fixture
def surface() -> Surface:
    """A small network at random weights, with two batches of unequal size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
    config = SimpleNamespace(seed=1, data_seed=1, device="cpu", precision="fp32")
    samples = SimpleNamespace(spread=lambda count: torch.arange(64)[:count].numpy())
    session: Any = SimpleNamespace(
        task=SimpleNamespace(task=Toy(loss=nn.functional.cross_entropy), split=lambda _: samples), config=config, model=model
    )
    made = Surface.__new__(Surface)
    made._read = lambda *_: [(x[:40], y[:40]), (x[40:], y[40:])]  # type: ignore[method-assign]
    made.__init__(session, 64)  # type: ignore[misc]
    return made


def exact_hessian(surface: Surface) -> Tensor:
    (names, parameters), batches = zip(*surface.model.named_parameters(), strict=True), surface._batches["train"]
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    ends = [0, *torch.tensor([p.numel() for p in parameters]).cumsum(0).tolist()]

    def loss(flat: Tensor) -> Tensor:
        parts = [flat[a:b].view_as(p) for a, b, p in zip(ends, ends[1:], parameters, strict=False)]
        return nn.functional.cross_entropy(
            torch.func.functional_call(surface.model, dict(zip(names, parts, strict=True)), (x,)), y
        )

    return torch.autograd.functional.hessian(loss, torch.cat([p.detach().flatten() for p in parameters])).double()


@pytest.mark.parametrize("product", ["exact_product", "near_product"])
def test_the_ends_of_the_spectrum_are_those_of_the_whole_hessian(surface, product):
    exact = torch.linalg.eigvalsh(exact_hessian(surface))
    surface.product = getattr(surface, product)
    found = lanczos(surface, 1, lambda _: None)
    assert found.largest == pytest.approx(float(exact[-1]), rel=0.01)
    assert found.smallest == pytest.approx(float(exact[0]), abs=max(2 * found.residual, 1e-3))


def test_an_operation_without_a_second_derivative_is_followed_by_differences(surface):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * (1 - ctx.saved_tensors[0].tanh() ** 2)

    smooth = sharpness(surface, lambda _: None)
    surface.model[2].forward = Once.apply
    surface.product = surface.exact_product
    found = sharpness(surface, lambda _: None)
    assert (smooth.method, found.method) == ("double backward", "finite differences of gradients")
    assert found.largest == pytest.approx(smooth.largest, rel=0.01)
    assert found.sam.rise > 0


def test_filters_of_a_direction_are_as_large_as_the_weights_and_biases_stay(surface):
    direction = surface.scaled_by_filter(surface.drawn(3, "landscape", 0))
    (weights, bias), here = surface.parts(direction)[:2], surface.parts(surface.at)[0]
    assert torch.allclose(weights.norm(dim=1), here.norm(dim=1))
    assert not bias.any()
    again = surface.scaled_by_filter(surface.drawn(3, "landscape", 0))
    other = surface.scaled_by_filter(surface.drawn(4, "landscape", 0))
    assert torch.equal(direction, again)
    assert not torch.equal(direction, other)


def test_weights_and_statistics_are_as_before_after_a_move(surface):
    before = {name: tensor.clone() for name, tensor in surface.model.state_dict().items()}
    direction = surface.scaled_by_filter(surface.drawn(3, "landscape", 0))
    here = surface.loss()
    with surface.moved((1.0, direction), renew=True):
        assert surface.loss() != here
        assert not torch.equal(surface.model[1].running_mean, before["1.running_mean"])
        assert not surface.model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in surface.model.state_dict().items())
    assert surface.loss() == here


def test_a_gradient_is_that_of_the_mean_over_unequal_batches(surface):
    x, y = (torch.cat(parts) for parts in zip(*surface._batches["train"], strict=True))
    whole = torch.autograd.grad(nn.functional.cross_entropy(surface.model(x), y), surface.parameters)
    assert float(norm(surface.gradient() - joined(whole))) < 1e-6


def test_the_middle_of_a_line_is_the_checkpoint():
    assert spread(0.7, 5) == pytest.approx([-0.7, -0.35, 0.0, 0.35, 0.7])
    assert spread(0.3, 41)[20] == 0.0
