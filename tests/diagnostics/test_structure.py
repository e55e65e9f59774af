"""What a model's answers cannot depend on is found by asking it: linear layers, an order that changes nothing, shared heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mltrainer.trainers.native.signals.structure import structure_of

TABLE, SERIES, TOKENS = (24, 6), (24, 9, 8), (24, 9)


class Through(nn.Module):
    """A model of parts and a function of them."""

    def __init__(self, call: Callable[[nn.ModuleDict, Tensor], Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.call = nn.ModuleDict(parts), call

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.parts, x)


def layers(*between: nn.Module, last: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 16), *between, nn.Linear(16, last))


def heads(shares: bool) -> nn.Module:
    made = [nn.Linear(6, 1) for _ in range(4)]
    return Through(
        lambda parts, x: torch.cat([head(x) for head in parts["heads"]], 1),  # type: ignore[union-attr]
        heads=nn.ModuleList([made[0]] * 4 if shares else made),
    )


def attending(positions: bool, pools: bool = True) -> nn.Module:
    def call(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        rows = parts["words"](x.long())
        rows = rows + parts["places"](torch.arange(x.shape[1])) if positions else rows
        found = parts["attention"](rows, rows, rows)[0]
        return parts["head"](found.mean(1) if pools else found)  # type: ignore[no-any-return]

    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    return Through(call, words=nn.Embedding(20, 8), places=nn.Embedding(9, 8), attention=attention, head=nn.Linear(8, 3))


def averaged() -> nn.Module:
    return Through(lambda parts, x: parts["head"](x.mean(1)), head=nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)))


def convolved() -> nn.Module:
    return nn.Sequential(nn.Conv1d(9, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3))


def asked(model: nn.Module, shape: tuple[int, ...], whole: bool = False) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randint(1, 20, shape) if whole else torch.randn(shape)
    found = structure_of(model, lambda: model(x))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "shape", "linear"),
    [
        (layers(), TABLE, True),
        (layers(nn.BatchNorm1d(16), nn.Identity(), nn.Dropout()), TABLE, True),
        (nn.Sequential(nn.Conv1d(9, 4, 3), nn.Conv1d(4, 2, 3), nn.Flatten(), nn.Linear(8, 2)), SERIES, True),
        (layers(nn.ReLU()), TABLE, False),
        (layers(nn.Hardtanh(-3, 3)), TABLE, False),
        (layers(nn.LayerNorm(16)), TABLE, False),
    ],
    ids=["two layers", "norm and dropout between", "convolutions", "ReLU", "a line in the middle alone", "layer norm"],
)
def test_layers_without_an_activation_are_linear(model, shape, linear):
    assert asked(model, shape)["linear"] is linear


@pytest.mark.parametrize(
    ("model", "shape", "orderless"),
    [
        (attending(False), TOKENS, [1]),
        (attending(False, pools=False), TOKENS, [1]),
        (nn.Sequential(nn.EmbeddingBag(20, 8), nn.Linear(8, 3)), TOKENS, [1]),
        (averaged(), SERIES, [1]),
        (attending(True), TOKENS, []),
        (attending(True, pools=False), TOKENS, []),
        (convolved(), SERIES, []),
        (layers(nn.ReLU()), TABLE, []),
    ],
    ids=[
        "attention",
        "attention for each token",
        "a bag",
        "a mean",
        "positions",
        "positions, each token",
        "convolution",
        "table",
    ],
)
def test_inputs_whose_order_changes_no_answer_are_named(model, shape, orderless):
    assert asked(model, shape, whole=shape == TOKENS)["orderless"] == orderless


def test_heads_that_are_one_are_counted():
    assert asked(heads(shares=True), TABLE)["same_answers"] == 3
    assert asked(heads(shares=False), TABLE)["same_answers"] == 0


def test_an_answer_through_one_number_has_one_direction():
    assert asked(layers(nn.Linear(16, 1), nn.Linear(1, 16), last=5), TABLE)["rank"] == 1
    assert asked(layers(nn.ReLU(), last=5), TABLE)["rank"] == 5


@pytest.mark.parametrize(
    ("seen", "ignored"),
    [
        (lambda x: x[:, 0], {"1": 8 / 9}),
        (lambda x: x[:, ::3].mean(1), {"1": 6 / 9}),
        (lambda x: x.mean(1) * torch.tensor([1.0] * 2 + [0.0] * 6), {"2": 6 / 8}),
        (lambda x: x[:, -4:].detach().mean(1), {}),
        (lambda x: x.mean(1), {}),
    ],
    ids=["the first place", "each third", "two of eight numbers", "no gradient", "all"],
)
def test_places_that_no_answer_looks_at_are_counted(seen, ignored):
    model = Through(lambda parts, x: parts["head"](seen(x)), head=nn.Linear(8, 3))
    assert asked(model, SERIES)["ignored"] == pytest.approx(ignored)


def test_a_state_that_goes_from_call_to_call_is_seen_and_a_draw_is_none():
    class Stateful(nn.Module):
        def __init__(self, keeps: bool) -> None:
            super().__init__()
            self.gru, self.head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)
            self.keeps, self.state = keeps, None

        def forward(self, x: Tensor) -> Tensor:
            found, state = self.gru(x, self.state)
            self.state = state.detach() if self.keeps else None
            return self.head(found[:, -1])

    assert asked(Stateful(keeps=True), SERIES)["repeats"] is False
    assert asked(Stateful(keeps=False), SERIES)["repeats"] is True
    drawing = Through(lambda parts, x: parts["head"](x + torch.randn_like(x)), head=nn.Linear(6, 3))
    assert asked(drawing, TABLE)["repeats"] is True


class Listed(nn.Module):
    """Layers in a list, of which PyTorch knows or does not."""

    def __init__(self, is_known: bool) -> None:
        super().__init__()
        made = [nn.Linear(6, 6), nn.Linear(6, 6)]
        self.inner: Any = nn.ModuleList(made) if is_known else made
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.inner:
            x = layer(x).relu()
        return self.head(x)


def test_layers_of_which_pytorch_does_not_know_are_counted():
    assert asked(Listed(is_known=False), TABLE)["unregistered"] == 4
    assert asked(Listed(is_known=True), TABLE)["unregistered"] == 0


def test_inputs_whose_gradient_a_model_asks_for_are_not_counted():
    model = Through(lambda parts, x: parts["layer"](x.detach().requires_grad_()), layer=nn.Linear(6, 3))
    assert asked(model, TABLE)["unregistered"] == 0


def test_a_level_that_is_normalized_away_is_seen():
    assert asked(nn.Sequential(nn.LayerNorm(6), layers(nn.ReLU())), TABLE)["levelless"] is True
    assert asked(layers(nn.LayerNorm(16), nn.ReLU()), TABLE)["levelless"] is False


def test_what_begins_at_zero_is_asked_as_if_it_did_not():
    model = layers(nn.ReLU())
    for parameter in model[-1].parameters():  # type: ignore[index]
        nn.init.zeros_(parameter)
    assert asked(model, TABLE)["rank"] == 3
    assert not any(parameter.any() for parameter in model[-1].parameters()), "and it is zero again"  # type: ignore[index]

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.gate = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)), nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.gate * self.inner(x)

    assert asked(nn.Sequential(Residual(), nn.Linear(6, 3)), TABLE)["linear"] is False


def test_a_model_of_several_inputs_or_that_refuses_others_is_not_judged():
    both = nn.Bilinear(6, 6, 2)
    assert structure_of(both, lambda: both(torch.randn(TABLE), torch.randn(TABLE))) is None

    def picky(parts: nn.ModuleDict, x: Tensor) -> Tensor:
        if float(x.abs().max()) > 5:
            raise ValueError("no sample is so large")
        return parts["layer"](x)

    model = Through(picky, layer=nn.Linear(6, 2))
    assert structure_of(model, lambda: model(torch.full((24, 6), 4.9) * torch.randn(24, 6).sign())) is None


def test_answers_that_differ_by_rounding_alone_are_not_judged():
    model = Through(lambda parts, x: 0.2 + 3e-8 * parts["layer"](x), layer=nn.Linear(6, 3))
    assert structure_of(model, lambda: model(torch.randn(TABLE))) is None


def test_outputs_that_an_activation_holds_at_0_are_not_shared():
    class Held(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(super().forward(x) - torch.tensor([0.0, 100.0, 100.0]))

    assert asked(Held(6, 3), TABLE)["same_answers"] == 0
