"""Data, models and scores that the second unseen set has beside those of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from tests.benchmarks.diagnostics.unseen_parts import Of, Rows, dense, drawn, r2

# --- scores, each named as its metric -------------------------------------------------------------


def rounded_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of outputs that are nearest to the number of their class."""
    return float((outputs.flatten().round() == targets).double().mean())


def r2_of_pictures(outputs: Tensor, targets: Tensor) -> float:
    """Return the r2 of the first 64 outputs, behind which the latent's means and log variances stand."""
    return r2(outputs[:, :64], targets)


# --- data -----------------------------------------------------------------------------------------


def turns() -> Rows:
    """Return noisy pictures of a road; the class is whether it bends left, bends right, or goes straight on."""
    y = torch.randint(0, 3, (1500,), generator=drawn(1))
    x = 0.5 * torch.randn(1500, 1, 8, 8, generator=drawn(2))
    for row in range(8):
        middle = 3 + torch.tensor([-1, 1, 0])[y] * ((7 - row) // 3)
        x[torch.arange(1500), 0, row, middle] += 2.5
        x[torch.arange(1500), 0, row, middle + 1] += 2.5
    return (x - x.mean()) / x.std(), y


class Mirrored(Dataset[Rows]):
    """Gives pictures, every second of them mirrored, drawn anew."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, number: int) -> Rows:
        return (self.x[number].flip(2) if torch.rand(()) < 0.5 else self.x[number]), self.y[number]


def clouds() -> Rows:
    """Return two clouds that overlap a little."""
    y = torch.randint(0, 2, (3000,), generator=drawn(1))
    return torch.randn(3000, 6, generator=drawn(2)) + 1.2 * y[:, None] - 0.6, y


def numbered(x: Tensor, y: Tensor) -> Rows:
    """Return rows with their number in a file that is sorted by class as one more column."""
    place = torch.empty(len(y)).scatter(0, y.argsort(stable=True), torch.arange(len(y)).float())
    return torch.cat([x, (place[:, None] / len(y) - 0.5) / 0.29], 1), y


def noisy_prices(distinct: int, noise: float) -> Rows:
    """Return 2000 rows of prices, made of fewer distinct ones."""
    x, y = datasets.make_friedman1(distinct, n_features=8, noise=noise, random_state=0)
    target = torch.tensor(y, dtype=torch.float32)
    rows = torch.arange(2000) % distinct
    return ((torch.tensor(x, dtype=torch.float32) - 0.5) / 0.29)[rows], ((target - target.mean()) / target.std())[rows, None]


def raw_cancer() -> Rows:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def shops(coded: bool) -> Rows:
    """Return sales, which depend on the shop and on two numbers; coded: the shop's number is a quantity."""
    shop = torch.randint(0, 50, (2400,), generator=drawn(1))
    x = torch.randn(2400, 2, generator=drawn(2))
    effect = 1.2 * torch.randn(50, generator=drawn(3))
    y = effect[shop] + 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.2 * torch.randn(2400, generator=drawn(4))
    place = (shop[:, None] - 24.5) / 14.4 if coded else functional.one_hot(shop, 50)
    return torch.cat([x, place.float()], 1), ((y - y.mean()) / y.std())[:, None]


def opinions(kept: int = 60) -> Rows:
    """Return texts of 20 words out of 60; the class is whether more are kind than unkind. Words behind `kept` are unknown."""
    x = torch.randint(1, 61, (2400, 20), generator=drawn(1))
    kind = torch.randn(61, generator=drawn(2))
    return x.where(x <= kept, 61), (kind[x].sum(1) > 0).long()


def chains(ahead: int = 1) -> Rows:
    """Return tokens, and for each the token that stands so many places ahead; it mostly follows from the two before it."""
    tokens = [torch.randint(0, 8, (1000,), generator=drawn(1)), torch.randint(0, 8, (1000,), generator=drawn(2))]
    chance = drawn(3)
    for _ in range(18):
        other = torch.randint(0, 8, (1000,), generator=chance)
        tokens.append(torch.where(torch.rand(1000, generator=chance) < 0.12, other, (tokens[-1] + 3 * tokens[-2]) % 8))
    made = torch.stack(tokens, 1)
    return made[:, :16].clone(), made[:, ahead : 16 + ahead].clone()


def counts() -> Rows:
    """Return counts whose expectation is an exponential of what is seen."""
    x = torch.randn(2000, 5, generator=drawn(1))
    rate = torch.exp(3.0 + 0.5 * (x @ torch.tensor([1.0, -0.7, 0.5, 0.0, 0.3])))
    return x, torch.poisson(rate, generator=drawn(2))[:, None]


# --- models ---------------------------------------------------------------------------------------


def started(change: Callable[[nn.Linear], Any], *sizes: int, between: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return a dense network whose hidden linear layers were changed at the start."""
    made = dense(*sizes, between=between)
    for layer in [part for part in made if isinstance(part, nn.Linear)][:-1]:
        change(layer)
    return made


def constant(layer: nn.Linear) -> None:
    nn.init.constant_(layer.weight, 0.02)
    nn.init.zeros_(layer.bias)


def normed(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 32), norm, nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))


class Summing(nn.Module):
    """Sums features of waves over time; kept: from the sums at which the batch before it ended."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.body, self.head, self.kept = nn.Sequential(nn.Conv1d(2, 24, 5, padding=2), nn.ReLU()), nn.Linear(24, 3), kept
        self.total = torch.zeros(0, 24)

    def forward(self, x: Tensor) -> Tensor:
        total = self.body(x.transpose(1, 2)).sum(2) / 5
        if self.kept:
            start = self.total[: len(x)]
            total = total + functional.pad(start, (0, 0, 0, len(x) - len(start)))
            self.total = total.detach()
        return self.head(total)


def foreteller(before: int, after: int) -> Of:
    """Return a convolution over tokens that sees so many before and after each."""
    pad = nn.ConstantPad1d((before, after), 0.0)
    body = nn.Sequential(pad, nn.Conv1d(16, 96, before + after + 1), nn.ReLU(), nn.Conv1d(96, 96, 1), nn.ReLU())
    parts = {"embed": nn.Embedding(8, 16), "body": body, "head": nn.Linear(96, 8)}
    return Of(lambda part, x: part["head"](part["body"](part["embed"](x).transpose(1, 2)).transpose(1, 2)), **parts)


def ending() -> Of:
    """Return a recurrent reader that answers from its state at the end of the row, behind the padding."""
    parts = {"embed": nn.Embedding(20, 16), "gru": nn.GRU(16, 32, batch_first=True), "head": nn.Linear(32, 2)}
    return Of(lambda part, x: part["head"](part["gru"](part["embed"](x))[0][:, -1]), **parts)


def bag() -> nn.Sequential:
    return nn.Sequential(nn.EmbeddingBag(62, 16), nn.Linear(16, 2))


class Listed(nn.Module):
    """Has its hidden layers in a list; registered: in one that PyTorch knows of."""

    def __init__(self, registered: bool) -> None:
        super().__init__()
        layers = [nn.Linear(2, 5), nn.Linear(5, 5)]
        self.hidden: Any = nn.ModuleList(layers) if registered else layers
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = layer(x).relu()
        return self.head(x)


class Variational(nn.Module):
    """Encodes pictures as means and log variances, and decodes a draw of them (in evaluation the means)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = dense(64, 96, 32), dense(16, 96, 64)

    def forward(self, x: Tensor) -> Tensor:
        mean, spread = self.encoder(x).chunk(2, 1)
        latent = mean + torch.randn_like(mean) * (spread / 2).exp() if self.training else mean
        return torch.cat([self.decoder(latent), mean, spread], 1)
