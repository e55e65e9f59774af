"""Weights that are tied in the code's intention alone; healthy twins are tied, or untied on purpose."""

from __future__ import annotations

import copy
from collections.abc import Callable
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


class Optional(Untied):
    """Tied where it is asked for."""

    def __init__(self, tie: bool) -> None:
        super().__init__()
        if tie:
            self.head.weight = self.embedding.weight


class ByDefault(Untied):
    """Tied unless it is asked not to, before the head is made once more."""

    def __init__(self, tie_weights: bool = True) -> None:
        super().__init__()
        if tie_weights:
            self.head.weight = self.embedding.weight
            self.head = nn.Linear(4, 11, bias=False)


class Own(nn.Module):
    """A head that is a parameter, turned."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.head = nn.Parameter(self.embedding.weight.detach().T.clone())


class Autoencoder(nn.Module):
    """A decoder that begins as the encoder, turned."""

    def __init__(self, copied: bool) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 3), nn.Linear(3, 6)
        if copied:
            self.decoder.weight.data = self.encoder.weight.detach().T.clone()


def scaled() -> nn.Module:
    model = Untied()
    model.head.load_state_dict({"weight": 0.1 * model.embedding.weight.detach()})
    return model


def grown() -> nn.Module:
    model = Tied()
    larger = nn.Embedding(15, 4)
    larger.weight.data[:11] = model.embedding.weight.detach()
    model.embedding = larger
    return model


def normed() -> nn.Module:
    model = Tied()
    nn.utils.parametrizations.weight_norm(model.head)
    return model


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


@pytest.mark.parametrize("make", [scaled, grown, normed, Own, lambda: Autoencoder(copied=True)])
def test_a_copy_is_known_scaled_turned_or_of_more_rows(make: Callable[[], nn.Module]) -> None:
    assert "begin with the same values" in told(make())[0]


def test_a_copy_beside_a_frozen_or_a_tied_embedding_is_none() -> None:
    frozen = Copied()
    frozen.embedding.weight.requires_grad_(False)
    towers = nn.ModuleList([Tied()])
    towers.append(copy.deepcopy(towers[0]))
    identities = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for one in identities:
        nn.init.eye_(one.weight)
    for model in (frozen, towers, identities, Autoencoder(copied=False)):
        assert told(model) == []


def test_what_is_tied_under_a_condition_is_told_where_the_condition_is_asked_for() -> None:
    class Owner:
        def model(self) -> nn.Module:
            return Optional(tie=True)

    class Other:
        def model(self) -> nn.Module:
            return ByDefault(tie_weights=False)

    assert told(Optional(tie=False)) == []
    assert "Owner ties weights" in told(Optional(tie=False), Owner())[0]
    assert "ByDefault ties weights" in told(ByDefault())[0]
    assert told(ByDefault(), Other()) == []


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
