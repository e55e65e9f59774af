"""What a model of tokens is asked for: targets that it sees, those one token too far, padding in the loss; and healthy twins."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.configs.items import DataLimits
from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.opening import open_task
from mltrainer.tasks.task import Task
from mltrainer.trainers.native import result
from mltrainer.trainers.native.signals.tokens import copy_findings, findings_of
from tests.toys import Wired

WORDS, LENGTH, SAMPLES = 30, 16, 8
SEEDS = range(3)


def recurrent() -> Wired:
    parts = {"embed": nn.Embedding(WORDS, 16), "gru": nn.GRU(16, 16, batch_first=True), "out": nn.Linear(16, WORDS)}
    return Wired(lambda model, tokens: model.out(model.gru(model.embed(tokens))[0]), **parts)


class Attending(nn.Module):
    """A layer of attention, with a causal mask or without."""

    def __init__(self, is_causal: bool = True) -> None:
        super().__init__()
        self.is_causal, self.embed, self.place = is_causal, nn.Embedding(WORDS, 16), nn.Embedding(64, 16)
        self.layer, self.out = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), nn.Linear(16, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.is_causal else None
        inputs = self.embed(tokens) + self.place(torch.arange(length))
        return self.out(self.layer(inputs, src_mask=mask, is_causal=self.is_causal))  # type: ignore[no-any-return]  # modules are untyped calls


def plainly(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def by_axis(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), targets)


def shifting(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def without(token: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda outputs, targets: functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=token)


class Language(Task):
    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor] = plainly) -> None:
        self.measure = loss

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return self.measure(outputs, targets)


class ShiftingForward(Language):
    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        return model(batch[0][:, :-1]), batch[0][:, 1:]


class FlatTargets(Language):
    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        return model(batch[0]).flatten(0, 1), batch[1].flatten()


def texts(seed: int, length: int = LENGTH + 4) -> Tensor:
    return torch.randint(1, WORDS, (SAMPLES, length), generator=torch.Generator().manual_seed(seed))


def pair(tokens: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    return tokens[:, :LENGTH], tokens[:, ahead : LENGTH + ahead]


def padded(seed: int, token: int = 0) -> Tensor:
    tokens, lengths = texts(seed), torch.randint(5, LENGTH, (SAMPLES,), generator=torch.Generator().manual_seed(seed))
    return torch.where(torch.arange(tokens.shape[1]) < lengths[:, None], tokens, token)


def told(task: Task, model: nn.Module, batch: Any) -> list[str]:
    torch.manual_seed(0)
    return [one.what for one in findings_of(task, model.eval(), batch)]


def models(is_causal: bool = True) -> list[nn.Module]:
    torch.manual_seed(1)
    return [
        Attending(is_causal),
        *([recurrent(), nn.Sequential(nn.Embedding(WORDS, 8), nn.Linear(8, WORDS))] if is_causal else []),
    ]


# --- shifts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss", [plainly, by_axis])
@pytest.mark.parametrize("model", models())
def test_targets_that_are_the_inputs_are_told(model, loss, seed):
    (text,) = told(Language(loss), model, pair(texts(seed), 0))
    assert text.startswith("the model is asked for the token that it sees: the targets are not shifted against the inputs")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", models())
def test_targets_that_are_two_tokens_ahead_are_told(model, seed):
    (text,) = told(Language(), model, pair(texts(seed), 2))
    assert text.startswith("the model is asked for a token 2 ahead, not for the next one")


@pytest.mark.parametrize("model", models())
def test_a_shift_in_the_data_and_in_the_loss_is_two(model):
    assert told(Language(shifting), model, pair(texts(0), 1))[0].startswith("the model is asked for a token 2 ahead")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_model_that_sees_the_next_token_is_told(seed):
    (text,) = told(Language(), models(False)[0], pair(texts(seed), 1))
    assert text.startswith("the model sees the token that it is asked for")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", models())
def test_a_shift_by_one_is_right_wherever_it_is_made(model, seed):
    tokens = texts(seed)
    assert told(Language(), model, pair(tokens, 1)) == []
    assert told(Language(by_axis), model, pair(tokens, 1)) == []
    assert told(Language(shifting), model, pair(tokens, 0)) == []
    assert told(ShiftingForward(), model, (tokens,)) == []
    assert told(FlatTargets(lambda outputs, targets: functional.cross_entropy(outputs, targets)), model, pair(tokens, 1)) == []


def test_a_dict_with_a_mask_is_looked_at():
    class Named(Attending):
        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:  # type: ignore[override]  # other names, by intent
            return super().forward(input_ids) + 0 * attention_mask.float()[:, :, None]

    for ahead, count in ((0, 1), (1, 0)):
        inputs, targets = pair(texts(0), ahead)
        batch = {"attention_mask": torch.ones_like(inputs), "input_ids": inputs, "labels": targets}
        assert len(told(Language(), Named(), batch)) == count


def test_other_tasks_on_tokens_are_none_of_the_next_token():
    tokens = texts(0)[:, :LENGTH]
    encoder, causal = models(False)[0], models()[0]
    other = texts(1)[:, :LENGTH]
    assert told(Language(), encoder, (tokens, tokens)) == []  # an autoencoder
    assert told(Language(), causal, (tokens, other)) == []  # translation
    assert told(Language(), causal, (tokens, tokens % 5)) == []  # tags
    assert told(Language(), causal, (tokens, tokens.flip(1))) == []  # reversal
    hidden = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    masked = torch.where(hidden, 0, tokens)
    assert told(Language(without(-100)), encoder, (masked, torch.where(hidden, tokens, -100))) == []
    first = nn.Sequential(nn.Embedding(WORDS, 4), nn.Flatten(), nn.Linear(4 * LENGTH, 3))
    assert told(Language(functional.cross_entropy), first, (tokens, tokens[:, 0] % 3)) == []  # classes of texts
    assert told(Language(), causal, (torch.ones_like(tokens), torch.ones_like(tokens))) == []


def test_images_are_no_tokens():
    pixels = torch.rand(SAMPLES, LENGTH)
    assert told(Language(functional.mse_loss), nn.Linear(LENGTH, LENGTH), (pixels, pixels)) == []


# --- padding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", models())
def test_padding_that_the_loss_counts_is_told(model, seed):
    (text,) = told(Language(), model, pair(padded(seed), 1))
    assert "of the targets are padding (token 0 at the samples' ends), and the loss counts them" in text
    assert "ignore_index=0" in text


@pytest.mark.parametrize("seed", SEEDS)
def test_padding_at_the_beginnings_is_told(seed):
    batch = tuple(part.flip(1) for part in reversed(pair(padded(seed), 1)))
    assert any("padding (token 0" in text for text in told(Language(), models()[0], batch))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", models())
def test_padding_that_the_loss_leaves_out_is_none(model, seed):
    inputs, targets = pair(padded(seed), 1)
    assert told(Language(without(0)), model, (inputs, targets)) == []
    assert told(Language(without(-100)), model, (inputs, torch.where(targets == 0, -100, targets))) == []
    # One at the end says that a text ends.
    ends = (targets == 0).cumsum(1) > 1
    assert told(Language(without(-100)), model, (inputs, torch.where(ends, -100, targets))) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_shifts_are_told_beside_padding(seed):
    assert len(told(Language(without(0)), models()[0], pair(padded(seed), 0))) == 1
    assert len(told(Language(), models()[0], pair(padded(seed), 2))) == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_whole_texts_and_a_frequent_word_are_no_padding(seed):
    tokens = texts(seed)
    tokens[torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed)) < 0.4] = 3  # blanks
    assert told(Language(), models()[0], pair(tokens, 1)) == []
    tokens = texts(seed)
    tokens[:, LENGTH:] = 2
    assert told(Language(), models()[0], pair(tokens, 1)) == []  # each ends in the same word


# --- through planning's record --------------------------------------------------------------------

TASK = """
import torch
from torch import nn
from torch.utils.data import Dataset
import mltrainer

class Windows(Dataset):
    def __init__(self, seed): self.tokens = torch.randint(0, 30, (40, 17), generator=torch.Generator().manual_seed(seed))
    def __len__(self): return len(self.tokens)
    def __getitem__(self, place): return self.tokens[place, :16], self.tokens[place, {begin}:{begin} + 16]

class Mine(mltrainer.Task):
    targets = "tokens"
    def dataset(self, split): return Windows(["train", "validation", "test"].index(split))
    def model(self): return nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
    def loss(self, outputs, targets): return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    def metrics(self, outputs, targets): return {{"accuracy": (outputs.argmax(-1) == targets).float().mean().item()}}
"""

NUMBERS = itertools.count()


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """What planning's record is made of, for targets that begin at a token."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def opened(begin: int) -> Any:
        name = f"windows_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(TASK.format(begin=begin))
        given = {
            "name": "w",
            "task": {"use": f"{name}:Mine"},
            "metric": {"name": "accuracy", "mode": "max"},
            "batch_size": 4,
        }
        config = TrainingConfig.model_validate(given)
        task = open_task(config, tmp_path)
        of_model = {"model": task.task.model(), "copies": [], "setup_findings": []}
        return SimpleNamespace(
            task=task, facts=task.facts(DataLimits()), config=config, ranks=SimpleNamespace(size=1), **of_model
        )

    return opened


def test_planning_records_a_missing_shift_of_a_data_set(session):
    found = result._facts(session(0))["findings"]
    assert [row["severity"] for row in found if "for the token that it sees" in row["what"]] == ["warning"]
    whole = result._facts(session(1))
    assert (whole["findings"], whole["not_looked_at"]) == ([], [])


def test_a_loss_that_refuses_other_targets_is_not_looked_at(session, monkeypatch):
    given = session(1)
    monkeypatch.setattr(given.task.task, "loss", lambda *_: (_ for _ in ()).throw(ValueError("no")))
    assert result._facts(given)["not_looked_at"] == ["shifts and padding of tokens: ValueError: no"]
    given.ranks.size = 2
    assert result._facts(given)["not_looked_at"] == ["shifts and padding of tokens: several processes train"]


# --- a head that is a copy of the embedding ---


def language_model(copied: bool, tied: bool = False) -> nn.ModuleList:
    embedding, head = nn.Embedding(11, 4), nn.Linear(4, 11, bias=False)
    if copied:
        head.weight = nn.Parameter(embedding.weight.detach().clone())
    if tied:
        head.weight = embedding.weight
    return nn.ModuleList([embedding, head])


def test_a_head_that_begins_as_a_copy_of_the_embedding_is_warned_of():
    (found,) = copy_findings(language_model(copied=True))
    assert found.what.startswith("the weights of 1 begin as a copy of 0's")
    assert "head.weight = embedding.weight" in found.what


def test_a_head_that_is_tied_or_has_weights_of_its_own_or_is_frozen_is_no_copy():
    frozen, zeros = language_model(copied=True), language_model(copied=False)
    frozen[1].requires_grad_(False)
    for parameter in zeros.parameters():
        nn.init.zeros_(parameter)
    towers = nn.ModuleList([language_model(copied=False, tied=True)])
    towers.append(copy.deepcopy(towers[0]))
    for model in (language_model(copied=False), language_model(copied=False, tied=True), frozen, zeros, towers):
        assert copy_findings(model) == []
