"""Gradients are limited, normalized and made noisy as the config says, and by no more."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from mltrainer.configs.project import Clip, Noise
from mltrainer.trainers.native.optimization.gradients import (
    SMALLEST_NORM,
    clipped_above,
    counts_clipped,
    gradient_norms,
    norm_summands,
    shape,
    unit_norms,
)
from tests.trainers.native.digits_runs import config, make, train


def shaped(*gradients: Tensor, step: int = 1, parameters: list[Tensor] | None = None, **changes: Any) -> list[Tensor]:
    found = [g.clone() for g in gradients]
    _, total = gradient_norms(norm_summands(found))
    shape(found, parameters or found, total, config({"clip": None, **changes}), step)
    return found


def norm(gradients: list[Tensor]) -> float:
    return gradient_norms(norm_summands(gradients))[1].item()


PAIR = (torch.tensor([3.0, 0.0]), torch.tensor([4.0]))


@pytest.mark.parametrize(("limit", "counted"), [({"norm": 2.0}, None), ({"norm": 0.5}, 0.0), ({"value": 0.5}, None)], ids=str)
def test_normalized_gradients_count_as_clipped_where_they_are(limit, counted):
    assert clipped_above(config({"clip": limit, "gradients": {"normalize": True}})) == counted
    assert clipped_above(config({"clip": limit})) == limit.get("norm")


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ({"clip": None}, True),
        ({"clip": {"norm": 0.5}}, True),
        ({"clip": {"value": 0.5}}, False),
        ({"clip": {"adaptive": 0.1}}, False),
        ({"clip": {"norm": 0.5}, "optimizer": {"name": "adamw", "lr": 0.01, "sam": {"rho": 0.05}}}, False),
    ],
    ids=str,
)
def test_clipped_steps_are_counted_only_where_the_recorded_norm_tells_them(changes, counted):
    assert counts_clipped(config(changes)) == counted


@pytest.mark.slow
def test_a_history_does_not_say_that_no_step_was_clipped_by_value(tmp_path):
    assert train(make(tmp_path), epochs=1, clip={"value": 1e-6})["history"][0]["clipped"] is None


def test_norms_are_those_of_each_parameter_and_of_all():
    norms, total = gradient_norms(norm_summands([torch.tensor([3.0, 4.0]), torch.tensor([12.0])]))
    assert norms.tolist() == [5.0, 12.0]
    assert total.item() == 13.0


def test_a_large_gradients_norm_is_that_of_its_rows_wherever_they_are():
    large = torch.randn(1000, 100, generator=torch.Generator().manual_seed(3))
    (whole,), _ = gradient_norms(norm_summands([large]))
    rows = torch.cat([torch.linalg.vector_norm(part, dim=1) for part in large.split([1, 333, 666])])
    assert torch.equal(torch.linalg.vector_norm(rows), whole)
    assert whole.item() == pytest.approx(gradient_norms([large])[1].item())


def test_a_small_gradients_norm_is_that_of_all_its_numbers():
    small = [torch.randn(64, 64, generator=torch.Generator().manual_seed(4)), torch.randn(9)]
    assert torch.equal(gradient_norms(norm_summands(small))[0], gradient_norms(small)[0])


def test_clipping_by_norm_scales_to_the_limit_and_leaves_small_gradients_alone():
    assert all(map(torch.equal, shaped(*PAIR, clip={"norm": 10.0}), PAIR))
    assert norm(shaped(*PAIR, clip={"norm": 1.0})) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("limit", [1e-7, 1e-5, 1.0, 13.0])
@pytest.mark.parametrize("share", [0.5, 0.98, 0.9899, 0.9901, 0.999, 1.0, 1.01])
def test_gradients_below_the_limit_have_the_bits_of_a_multiplication_by_the_factor(limit, share):
    gradient = torch.rand(1000) * limit
    gradient *= share * limit / torch.linalg.vector_norm(gradient)
    factor = (limit / (torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient)])) + SMALLEST_NORM)).clamp(max=1)
    assert torch.equal(shaped(gradient, clip={"norm": limit})[0], gradient * factor)


def test_clipping_by_value_limits_each_number():
    assert [g.tolist() for g in shaped(torch.tensor([3.0, -0.25]), torch.tensor([-4.0]), clip={"value": 0.5})] == [
        [0.5, -0.25],
        [-0.5],
    ]


def test_adaptive_clipping_limits_each_unit_by_its_own_weights():
    weights = torch.tensor([[3.0, 4.0], [0.0, 0.1]])
    found = shaped(torch.tensor([[0.3, 0.4], [3.0, 4.0]]), parameters=[weights], clip={"adaptive": 0.1})[0]
    assert torch.allclose(found[0], torch.tensor([0.3, 0.4]))  # |g| = 0.5 = 0.1 * |w|
    assert torch.linalg.vector_norm(found[1]).item() == pytest.approx(0.01, rel=1e-4)


def test_a_unit_of_zeros_may_grow_under_adaptive_clipping():
    found = shaped(torch.ones(2, 2), parameters=[torch.zeros(2, 2)], clip={"adaptive": 0.1})[0]
    assert unit_norms(found).flatten().tolist() == pytest.approx([1e-4, 1e-4], rel=1e-4)


def test_a_convolutions_units_are_its_filters():
    assert unit_norms(torch.ones(4, 3, 2, 2)).shape == (4, 1, 1, 1)
    assert unit_norms(torch.ones(5)).shape == ()


def test_normalized_gradients_have_norm_one_before_they_are_clipped():
    assert norm(shaped(*PAIR, gradients={"normalize": True})) == pytest.approx(1.0, abs=1e-5)
    assert norm(shaped(*PAIR, gradients={"normalize": True}, clip={"norm": 0.5})) == pytest.approx(0.5, abs=1e-5)


def test_noise_has_the_papers_variance_and_fades():
    zeros = torch.zeros(100_000)
    for step in (1, 100):
        found = shaped(zeros, step=step, gradients={"noise": {"eta": 0.3, "gamma": 0.55}})[0]
        assert found.std().item() == pytest.approx((0.3 / step**0.55) ** 0.5, rel=0.02)
    assert Noise(eta=0.04).deviation(1) == pytest.approx(0.2)


@pytest.mark.parametrize("clip", [{}, {"norm": 1.0, "value": 1.0}, {"norm": 0.0}])
def test_clipping_is_by_exactly_one_measure(clip):
    with pytest.raises(ValidationError):
        Clip.model_validate(clip)
