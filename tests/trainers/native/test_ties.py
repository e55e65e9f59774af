"""Weights that are tied in the code's intention alone; healthy twins are tied, or untied on purpose."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mltrainer.trainers.native.signals.ties import tie_findings


class Untied(nn.Module):
    """A head of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 4), nn.Linear(4, 11, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens))


class Tied(Untied):
    """One parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embedding.weight


class Parted(Untied):
    """Tied, before the head is made once more."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embedding.weight
        self.head = nn.Linear(4, 11, bias=False)


class Copied(Untied):
    """With the same values."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight.data = self.embedding.weight.detach().clone()


def told(model: nn.Module, owner: Any = None) -> list[str]:
    return [one.what for one in tie_findings(model, owner)]


@pytest.mark.parametrize(
    ("make", "words"),
    [(Parted, "Parted ties weights, but no two modules share any"), (Copied, "embedding and head begin with the same values")],
)
def test_a_tie_that_is_none_is_told_with_its_modules(make: type[nn.Module], words: str) -> None:
    (found,) = told(make())
    assert words in found
    assert "head.weight = embedding.weight" in found


def test_what_is_tied_or_untied_on_purpose_is_silent() -> None:
    for model in (Tied(), Untied(), copy.deepcopy(Tied()), nn.Linear(2, 2)):
        assert told(model) == []
    with torch.no_grad():
        for one in (alike := Untied()).parameters():
            one.zero_()
    assert told(alike) == []


def test_a_flag_or_the_class_that_makes_the_model_may_say_that_it_is_tied() -> None:
    model: Any = Untied()
    model.config = SimpleNamespace(tie_word_embeddings=True)
    assert "the flag tie_word_embeddings" in told(model)[0]

    class Owner:
        def model(self) -> nn.Module:
            made = Untied()
            made.head.weight.data.copy_(made.embedding.weight)
            return made

    assert "same values" in told(Owner().model())[0]
    assert "Owner ties weights" in told(Untied(), Owner())[0]
