"""The models of the cases, and what may be wrong with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Fill = Callable[[Tensor], Tensor]
Model = TypeVar("Model", bound=nn.Module)


def perceptron(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    last: nn.Module | None = None,
    dropout: float = 0.0,
    norm: bool = False,
) -> nn.Sequential:
    """Return linear layers from the first size to the last, with activations in between and perhaps one at the end."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norm else []), activation()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]), *([] if last is None else [last]))


def convolutions() -> nn.Sequential:
    """Return a small convolutional network for digits."""
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)),
    )


class Recurrent(nn.Module):
    """Reads a row as a sequence, and answers from the last hidden state."""

    def __init__(self, cell: nn.RNNBase, outputs: int) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(cell.hidden_size, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.cell(x.view(len(x), -1, self.cell.input_size))
        answer: Tensor = self.head(states[:, -1])
        return answer


def lstm() -> Recurrent:
    return Recurrent(nn.LSTM(8, 64, batch_first=True), 10)


def simple_rnn(nonlinearity: str, gain: float) -> Recurrent:
    """Return a plain recurrent network with an orthogonal recurrent matrix times a gain."""
    cell = nn.RNN(1, 32, nonlinearity=nonlinearity, batch_first=True)
    nn.init.orthogonal_(cell.weight_hh_l0, gain=gain)
    return Recurrent(cell, 2)


class Attention(nn.Module):
    """A transformer over the eight rows of a digit."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Linear(8, 32), nn.Parameter(torch.zeros(8, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.block(self.embed(x.view(-1, 8, 8)) + self.places).mean(1))
        return answer


class Residual(nn.Module):
    """Twenty residual blocks with normalization in front."""

    def __init__(self, width: int = 64, depth: int = 20) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, width), nn.Linear(width, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        answer: Tensor = self.last(x)
        return answer


# --- what may be wrong with them ------------------------------------------------------------------


class Exponential(nn.Module):
    """The exponential as an activation."""

    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


def filled(model: Model, weights: Fill, bias: float = 0.0) -> Model:
    """Return a model whose linear layers and convolutions begin with other weights."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.Conv1d)):
            weights(module.weight)
            if module.bias is not None:
                nn.init.constant_(module.bias, bias)
    return model


def he_uniform(weight: Tensor) -> Tensor:
    return nn.init.kaiming_uniform_(weight, nonlinearity="relu")


def normal(deviation: float) -> Fill:
    return lambda weight: nn.init.normal_(weight, 0.0, deviation)


class Detached(nn.Module):
    """A network whose lower half gets no gradient, because its output is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.lower, self.head = perceptron([64, 64, 64], last=nn.ReLU()), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.lower(x).detach())
        return answer


def with_dead_statistics(model: nn.Module) -> nn.Module:
    """Return a model whose batch norms never update what they evaluate with."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = 0.0
            nn.init.constant_(module.get_buffer("running_var"), 100.0)
    return model


def ascending(model: nn.Module) -> nn.Module:
    """Return a model whose gradients have the wrong sign."""
    for parameter in model.parameters():
        parameter.register_hook(torch.neg)
    return model


class _Piling:
    """Adds each gradient to all before it."""

    def __init__(self) -> None:
        self.sum: Tensor | None = None

    def __call__(self, gradient: Tensor) -> Tensor:
        self.sum = gradient.clone() if self.sum is None else self.sum + gradient
        return self.sum.clone()


def piling(model: nn.Module) -> nn.Module:
    """Return a model whose gradients are never set to zero."""
    for parameter in model.parameters():
        parameter.register_hook(_Piling())
    return model
