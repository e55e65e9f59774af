"""Tensors in the structures that batches, outputs and targets are made of."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from mltrainer.tasks.structures import joined, length, main_output, mapped, tensors_in

A, B = torch.arange(3.0), torch.ones(3)


class Pair(NamedTuple):
    logits: Tensor
    hidden: Tensor


@dataclass
class Output:
    loss: Tensor | None
    logits: Tensor


@dataclass
class Mapped(OrderedDict[str, Any]):
    """As Hugging Face's outputs: a dataclass that is a mapping of what it holds."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    cache: object = None

    def __post_init__(self) -> None:
        self.update({name: value for name, value in vars(self).items() if value is not None})


STRUCTURES = [(A, B), [A, B], Pair(A, B), {"a": A, "b": [B]}, Output(A, B), Mapped(loss=A, logits=B)]


@pytest.mark.parametrize("value", STRUCTURES, ids=lambda value: type(value).__name__)
def test_every_tensor_is_reached_and_the_structure_kept(value):
    moved = mapped(lambda tensor: tensor + 1, value)
    assert type(moved) is type(value)
    assert [x.tolist() for x in tensors_in(moved)] == [(A + 1).tolist(), (B + 1).tolist()]


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (A, A),
        ((A, B), A),
        ({"hidden": B, "logits": A}, A),
        ({"scores": A, "hidden": B}, A),
        (Pair(A, B), A),
        (Output(None, A), A),
        (Mapped(loss=B, logits=A, cache=object()), A),
    ],
)
def test_the_main_output_is_named_logits_or_comes_first(outputs, expected):
    assert main_output(outputs) is expected


@pytest.mark.parametrize("value", STRUCTURES, ids=lambda value: type(value).__name__)
def test_batches_are_joined_end_to_end_in_their_structure(value):
    found = joined([value, value])
    assert [len(x) for x in tensors_in(found)] == [6, 6]
    assert getattr(found, "logits", None) is None or len(found.logits) == 6


def test_numbers_of_batches_stand_in_a_row_and_other_things_are_left_out():
    found = joined([{"loss": torch.tensor(1.0), "cache": object()}, {"loss": torch.tensor(2.0), "cache": object()}])
    assert (found["loss"].tolist(), found["cache"]) == ([1.0, 2.0], None)


@pytest.mark.parametrize(("value", "expected"), [(A, 3), ({"boxes": A, "x": B}, 3), ((A, B), 3), ([{}, {}], 2), ("ab", 2)])
def test_a_structure_tells_of_how_many_samples_it_is(value, expected):
    assert length(value) == expected
