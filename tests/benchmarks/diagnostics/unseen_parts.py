"""Data, models and losses of the unseen set, each as people write it, and what goes wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional

from mltrainer.records.run import TargetKind
from tests.benchmarks.diagnostics.pairs import Own, Splits

Rows = tuple[Tensor, Tensor]
Change = Callable[[Tensor, Tensor], Rows]
Score = Callable[[Tensor, Tensor], float]


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return the share of right answers among the targets that are not padding."""
    counted = targets >= 0
    return float((outputs.argmax(-1) == targets)[counted].double().mean())


def two(outputs: Tensor, targets: Tensor) -> float:
    return float(((outputs > 0) == (targets > 0)).double().mean())


def likely(outputs: Tensor, targets: Tensor) -> float:
    return float(((outputs.flatten() > 0.5) == (targets > 0)).double().mean())


def balanced(outputs: Tensor, targets: Tensor) -> float:
    """Return the mean over the classes of the share of each that is told."""
    right = outputs.argmax(1) == targets
    return float(torch.stack([right[targets == one].double().mean() for one in targets.unique()]).mean())


def r2(outputs: Tensor, targets: Tensor) -> float:
    return float(1 - (outputs - targets).square().sum() / (targets - targets.mean(0)).square().sum())


class Unseen(Own):
    """Data, model, loss and score as they are given."""

    def __init__(
        self, splits: Callable[[], Splits], model: Callable[[], nn.Module], loss: Any, score: Score, updates: Any = None
    ) -> None:
        super().__init__(splits, model, loss, updates)
        self.score = score
        names = {two: "accuracy", likely: "accuracy", balanced: "balanced_accuracy"}
        self.metric = names.get(score, score.__name__)
        self.targets = kind_of(self.splits.train, self.metric)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {self.metric: self.score(outputs, targets)}


def kind_of(train: Any, metric: str) -> TargetKind:
    """Return what a person who writes such a task says of its targets."""
    if "accuracy" not in metric and "reversed" not in metric:
        return "values"
    is_sequence = isinstance(train, tuple) and train[1].dim() == 2 and not train[1].is_floating_point()
    return "tokens" if is_sequence else "classes"


# --- data -----------------------------------------------------------------------------------------


def drawn(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same(x: Tensor, y: Tensor) -> Rows:
    return x, y


def split(x: Tensor, y: Tensor, train: Change = same, validation: Change = same, order: Tensor | None = None) -> Splits:
    """Return three quarters for training and the rest for validation, each changed."""
    order = torch.randperm(len(x), generator=drawn()) if order is None else order
    x, y, cut = x[order], y[order], len(x) * 3 // 4
    return Splits(train(x[:cut], y[:cut]), validation(x[cut:], y[cut:]))


def digits() -> Rows:
    x, y = datasets.load_digits(return_X_y=True)
    return (torch.tensor(x, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16 - 0.3) / 0.38, torch.tensor(y)


def colours() -> Rows:
    """Return pictures of three channels; the class is which of three colours the blob has."""
    y = torch.randint(0, 3, (1600,), generator=drawn(1))
    x = 0.7 * torch.randn(1600, 3, 8, 8, generator=drawn(2))
    x[:, :, 2:6, 2:6] += 1.2 * functional.one_hot(y, 3).float()[:, :, None, None]
    return x, y


def cancer() -> Rows:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    values = torch.tensor(x, dtype=torch.float32)
    return (values - values.mean(0)) / values.std(0), torch.tensor(y)


def rings() -> Rows:
    x, y = datasets.make_circles(2000, noise=0.1, factor=0.4, random_state=0)
    return torch.tensor(x, dtype=torch.float32) / 0.55, torch.tensor(y)


def rare() -> Rows:
    """Return two overlapping clouds, one of them a twelfth of the rows."""
    y = (torch.rand(3000, generator=drawn(1)) < 1 / 12).long()
    return torch.randn(3000, 6, generator=drawn(2)) + 1.1 * y[:, None], y


def prices() -> Rows:
    x, y = datasets.make_friedman1(2000, n_features=8, noise=0.5, random_state=0)
    target = torch.tensor(y, dtype=torch.float32)
    return (torch.tensor(x, dtype=torch.float32) - 0.5) / 0.29, ((target - target.mean()) / target.std())[:, None]


def tags() -> Rows:
    """Return rows with six labels at once."""
    x = torch.randn(2000, 16, generator=drawn(1))
    return x, (x @ torch.randn(16, 6, generator=drawn(2)) > 0).float()


def waves() -> Rows:
    """Return noisy waves [rows, times, channels]; the class is the frequency."""
    y = torch.randint(0, 3, (1600,), generator=drawn(1))
    phase = 6.28 * torch.rand(1600, 1, 2, generator=drawn(2))
    times = torch.arange(24)[None, :, None] / 24
    wave = torch.sin(6.28 * (y + 1)[:, None, None] * times + phase) * torch.tensor([1.4, 1.0])
    return wave + 0.3 * torch.randn(1600, 24, 2, generator=drawn(3)), y


def loads() -> Rows:
    """Return windows of a series in the order of time, and the value after each."""
    times = torch.arange(2024)
    noise = torch.randn(2024, generator=drawn(1))
    kept = [torch.zeros(())]
    for value in noise:
        kept.append(0.6 * kept[-1] + 0.5 * value)
    series = torch.sin(6.28 * times / 12) + 0.6 * torch.sin(6.28 * times / 5) + torch.stack(kept[1:])
    series = series / series.std()
    windows = series.unfold(0, 13, 1)
    return windows.clone(), windows[:, -1:].clone()


def earlier(x: Tensor, y: Tensor) -> Rows:
    """Return the windows without their last value, which is the target."""
    return x[:, :-1].clone(), y


def reviews(late: bool = False) -> Rows:
    """Return padded tokens; the class is which of two words comes first (late: in the last third)."""
    y = torch.randint(0, 2, (2000,), generator=drawn(1))
    x = torch.randint(3, 20, (2000, 15), generator=drawn(2))
    places = torch.rand(2000, 5 if late else 10, generator=drawn(3)).argsort(1)[:, :2].sort(1).values + (10 if late else 0)
    words = torch.stack([2 - y, 1 + y], 1)
    x = x.scatter(1, places, words)
    lengths = torch.randint(10, 16, (2000, 1), generator=drawn(4))
    return x if late else x.where(torch.arange(15) < lengths, 0), y


def wide_reviews() -> Rows:
    x, y = reviews()
    return functional.pad(x, (0, 25)), y


def padded_left(x: Tensor, y: Tensor) -> Rows:
    return torch.stack([row.roll(int((row == 0).sum())) for row in x]), y


def spellings() -> Rows:
    """Return tokens of sentences of unequal length with a tag each; -1 where there is padding."""
    x = torch.randint(1, 12, (1200, 16), generator=drawn(1))
    y = ((x + x.roll(1, 1)) % 3).long()
    over = torch.arange(16) >= torch.randint(6, 17, (1200, 1), generator=drawn(2))
    y[:, 0] = 0
    return x.masked_fill(over, 0), y.masked_fill(over, -1)


def to_itself(x: Tensor, _y: Tensor) -> Rows:
    return x, x.flatten(1)


def recoded(share: float) -> Change:
    """Return a change that swaps the two classes in a share of the rows."""
    return lambda x, y: (x, torch.where(torch.rand(len(y), generator=drawn(5)) < share, 1 - y, y))


def with_mean_target(known: bool) -> Change:
    """Return a change that appends the mean target of a row's customer, who has few rows; 0 where it is not known."""

    def change(x: Tensor, y: Tensor) -> Rows:
        mean = (y + 0.3 * torch.randn(len(y), 1, generator=drawn(6))) if known else torch.zeros(len(y), 1)
        return torch.cat([x, mean], 1), y

    return change


def mixed_units(x: Tensor, y: Tensor) -> Rows:
    rows = torch.rand(len(x), generator=drawn(7)) < 0.3
    x = x.clone()
    x[rows, 3] = x[rows, 3] * 1000
    x[rows, 0] = x[rows, 0] * 1000
    return x, y


# --- models ---------------------------------------------------------------------------------------


def dense(*sizes: int, between: Callable[[], nn.Module] = nn.ReLU, last: Callable[[], nn.Module] | None = None) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in itertools.pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), between()]
    return nn.Sequential(*parts[:-1], *([last()] if last else []))


def pictures(channels: int, classes: int, norm: Callable[[], nn.Module] = nn.Identity) -> nn.Sequential:
    first, second = nn.Conv2d(channels, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
    middle = (norm(), nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, *middle, nn.Flatten(), nn.Linear(96, classes))


class Of(nn.Module):
    """A module with what is computed by it: `call(part, x)`."""

    def __init__(self, call: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.call, self.part = call, nn.ModuleDict(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.part, x)


def recurrent(call: Callable[..., Tensor] | None = None, batch_first: bool = True) -> Of:
    parts = {"gru": nn.GRU(2, 24, batch_first=batch_first), "head": nn.Linear(24, 3)}
    return Of(call or (lambda part, x: part["head"](part["gru"](x)[0][:, -1])), **parts)


def convolved(turn: Callable[[Tensor], Tensor] = lambda x: x.transpose(1, 2), pool: nn.Module | None = None) -> Of:
    body = nn.Sequential(nn.Conv1d(2, 16, 5, padding=2), nn.ReLU(), nn.Conv1d(16, 16, 5, padding=2), nn.ReLU())
    parts = {"first": pool or nn.Identity(), "body": body, "head": nn.Linear(16, 3)}
    return Of(lambda part, x: part["head"](part["body"](part["first"](turn(x))).amax(2)), **parts)


def by_place() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(320, 32), nn.ReLU(), nn.Linear(32, 2))


def reader() -> Of:
    """Return a recurrent reader of tokens that answers from its state at the last word."""

    def call(part: Any, x: Tensor) -> Tensor:
        ends = (x > 0).sum(1) - 1
        out = part["gru"](part["embed"](x))[0]
        return part["head"](out[torch.arange(len(x)), ends])

    return Of(call, embed=nn.Embedding(20, 16), gru=nn.GRU(16, 32, batch_first=True), head=nn.Linear(32, 2))


class Attending(nn.Module):
    """One block of attention over tokens, pooled."""

    def __init__(self, places: bool) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 32), nn.Linear(32, 2)
        self.place = nn.Embedding(15, 32) if places else None
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        h = h if self.place is None else h + self.place.weight
        return self.head(self.blocks(h).mean(1))


def tagger() -> Of:
    parts = {"embed": nn.Embedding(12, 16), "mix": nn.Conv1d(16, 48, 3, padding=1), "head": nn.Linear(48, 3)}
    return Of(lambda part, x: part["head"](part["mix"](part["embed"](x).transpose(1, 2)).relu().transpose(1, 2)), **parts)


def heads(shared: bool) -> Of:
    """Return a head for each of six labels; shared: a list that was multiplied."""
    single = nn.Linear(32, 1)
    made = nn.ModuleList([single] * 6 if shared else [nn.Linear(32, 1) for _ in range(6)])
    body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
    return Of(lambda part, x: torch.cat([head(part["body"](x)) for head in part["made"]], 1), body=body, made=made)


def two_stages(cut: bool) -> Of:
    """Return a stem and a head on rings; cut: the stem's features are detached."""
    parts = {"stem": nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()), "head": nn.Linear(4, 2)}
    return Of(lambda part, x: part["head"](part["stem"](x).detach() if cut else part["stem"](x)), **parts)


class AlwaysTraining(nn.Sequential):
    """Puts itself into training mode in `forward`, as somebody left it there."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.training else super().train().forward(x)
