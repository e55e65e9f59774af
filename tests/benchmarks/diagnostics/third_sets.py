"""The third set's cases of Datasets: pictures that are drawn when they are read, windows of recordings, and streams of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, IterableDataset

from tests.benchmarks.diagnostics.case import adam, by, healthy, sgd
from tests.benchmarks.diagnostics.pairs import (
    Labelled,
    Measured,
    Own,
    Pair,
    Reported,
    Splits,
    all_weights,
    biases_alone,
    pair,
    waiting,
)

SIDE = 12
KINDS = 4
Sample = tuple[Tensor, int]
Alter = Callable[[Tensor, int], Tensor]
Answers = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

# --- pictures -------------------------------------------------------------------------------------


def as_drawn(x: Tensor, _place: int) -> Tensor:
    return x


def by_turns(place: int) -> int:
    return place % KINDS


def shape_of(kind: int, draws: np.random.Generator) -> np.ndarray:
    """Return a bar that lies, a bar that stands, a cross or a frame, somewhere in a picture of zeros."""
    picture = np.zeros((SIDE, SIDE), dtype=np.float32)
    row, column = draws.integers(0, SIDE - 5, 2)
    part = picture[row : row + 5, column : column + 5]
    if kind == 3:
        part[[0, -1]], part[:, [0, -1]] = 1.0, 1.0
    if kind in (0, 2):
        part[2] = 1.0
    if kind in (1, 2):
        part[:, 2] = 1.0
    return picture


@dataclass
class Pictures(Dataset[Sample]):
    """Draws a picture where it is read, the same each time.

    Attributes:
        rows: How many.
        first: The number of the first one: pictures of equal number are equal.
        noise: Deviation of what is added to each pixel.
        kind: The class of a place.
        label: What stands for it as target.
        alter: Changes a picture.
    """

    rows: int
    first: int = 0
    noise: float = 0.4
    kind: Callable[[int], int] = by_turns
    label: Callable[[int], int] | None = None
    alter: Alter = as_drawn

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, place: int) -> Sample:
        draws = np.random.default_rng([self.first + place, 5])
        picture = shape_of(self.kind(place), draws)
        noisy = picture + self.noise * draws.standard_normal(picture.shape, dtype=np.float32)
        return self.alter(torch.from_numpy(noisy)[None], place), (self.label or self.kind)(place)


TRAIN, HELD_OUT = 480, 240
AT = 100_000  # the number of the first picture for validation


def pictures(train: dict[str, Any] | None = None, validation: dict[str, Any] | None = None) -> Splits:
    """Return pictures of both splits, with what differs from the usual ones."""
    return Splits(Pictures(**{"rows": TRAIN, **(train or {})}), Pictures(**{"rows": HELD_OUT, "first": AT, **(validation or {})}))


def both(**others: Any) -> Splits:
    return pictures(others, others)


def guessed(share: float) -> Callable[[int], int]:
    """Return labels of which a share is wrong."""

    def label(place: int) -> int:
        draws = np.random.default_rng([place, 9])
        return int((place + draws.integers(1, KINDS)) % KINDS) if draws.random() < share else place % KINDS

    return label


def times(factor: float) -> Alter:
    return lambda x, _place: factor * x


def of_bytes(x: Tensor, _place: int) -> Tensor:
    """Return a picture as bytes hold it, which nobody divided by 255."""
    return (255 * (x + 1) / 3).clamp(0, 255).round()


def of_units(x: Tensor, place: int) -> Tensor:
    return of_bytes(x, place) / 255


def damaged(x: Tensor, place: int) -> Tensor:
    """Return the picture; of one the file is damaged, and holds huge numbers."""
    return 3e3 * x.sign() if place == 77 else x


def roughly(x: Tensor, _place: int) -> Tensor:
    """Return a picture as a heavy augmentation draws it anew: moved, in part erased, with noise."""
    rows, columns, top, left = (int(torch.randint(0, high, ())) for high in (SIDE, SIDE, SIDE - 6, SIDE - 6))
    x = x.roll((rows, columns), (1, 2)).clone()
    x[:, top : top + 6, left : left + 6] = 0.0
    return x + 0.6 * torch.randn_like(x)


def gently(x: Tensor, _place: int) -> Tensor:
    """Return a picture of which a square is erased and to which noise is added."""
    top, left = (int(torch.randint(0, SIDE - 4, ())) for _ in range(2))
    x = x.clone()
    x[:, top : top + 4, left : left + 4] = 0.0
    return x + 0.4 * torch.randn_like(x)


class FirstOnly(Pictures):
    """Reads the first picture at every place, by an index that is never used."""

    def __getitem__(self, place: int) -> Sample:
        return super().__getitem__(0)[0], self.kind(place)


def in_parts(rows: int) -> Callable[[int], int]:
    """Return the classes of a folder that is read class after class."""
    return lambda place: place * KINDS // rows


def cut(order: Callable[[int], int]) -> Splits:
    """Return the first four fifths of a folder to train on and the last fifth for validation."""
    return pictures({"rows": 480, "kind": order}, {"rows": 120, "first": 480, "kind": lambda place: order(480 + place)})


class Folder(IterableDataset[Sample]):
    """Gives pictures as a stream."""

    def __init__(self, pictures: Pictures) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __iter__(self) -> Iterator[Sample]:
        return (self.pictures[place] for place in range(len(self.pictures)))


def streamed(order: Callable[[int], int]) -> Splits:
    return Splits(Folder(Pictures(TRAIN, kind=order)), Pictures(HELD_OUT, AT))


LONG_TAIL = (160, 90, 50, 30, 20, 14)  # pictures of each class


class Tailed(Pictures):
    """Pictures of six classes, the last two inverted ones, each with fewer than the class before."""

    def __getitem__(self, place: int) -> Sample:
        kind = int(np.searchsorted(np.cumsum(LONG_TAIL), place % sum(LONG_TAIL), side="right"))
        draws = np.random.default_rng([self.first + place, 5])
        picture = shape_of(kind % KINDS, draws) * (1 if kind < KINDS else -1)
        return torch.from_numpy(picture + 0.2 * draws.standard_normal(picture.shape, dtype=np.float32))[None], kind


# --- recordings -----------------------------------------------------------------------------------

WINDOW = 32


@dataclass
class Recordings(Dataset[Sample]):
    """Cuts windows from the recordings of patients, each with a tone and a loudness of its own; half of them are ill.

    Attributes:
        windows: Patient and number of each.
        effect: What illness adds to every window.
    """

    windows: Sequence[tuple[int, int]]
    effect: float = 0.12

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, place: int) -> Sample:
        patient, number = self.windows[place]
        own, draws = np.random.default_rng([patient, 3]), np.random.default_rng([patient, number, 4])
        ill, moments = patient % 2, np.arange(WINDOW)
        tones = own.uniform(0.2, 2.8, 2)
        sound = sum(own.uniform(0.5, 1.5) * np.sin(tone * moments + draws.uniform(0, 6.3)) for tone in tones)
        whole = sound + 0.3 * draws.standard_normal(WINDOW) + self.effect * ill
        return torch.from_numpy(np.asarray(whole, dtype=np.float32)), ill


def patients(is_by_patient: bool, count: int = 24, each: int = 30) -> Splits:
    """Return windows of which a third is for validation: those of other patients, or any."""
    windows = [(patient, number) for patient in range(count) for number in range(each)]
    if not is_by_patient:
        windows = [windows[place] for place in np.random.default_rng(0).permutation(len(windows))]
    at = 2 * len(windows) // 3
    return Splits(Recordings(windows[:at]), Recordings(windows[at:]))


@dataclass
class Series(Dataset[tuple[Tensor, Any]]):
    """Sequences of 60 numbers and the sum of the first ten of them.

    Attributes:
        rows: How many.
        first: The number of the first one.
        scale: Of the inputs.
        is_flat: Whether a target is a number without a dimension.
    """

    rows: int
    first: int = 0
    scale: float = 1.0
    is_flat: bool = False

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, place: int) -> tuple[Tensor, Any]:
        draws = np.random.default_rng([self.first + place, 8])
        x = torch.from_numpy(draws.standard_normal(60, dtype=np.float32))
        target = x[:10].sum() / 3
        return self.scale * x, target if self.is_flat else target[None]


def series(**others: Any) -> Splits:
    return Splits(Series(480, **others), Series(240, AT, **others))


# --- models ---------------------------------------------------------------------------------------


class Seeing(nn.Module):
    """Two convolutions and a linear head.

    Args:
        norm: Makes what follows each convolution.
        bias: With which the convolutions begin; None: drawn.
        is_always_dropping: Whether dropout is called as a function, which knows no evaluation mode.
        dropout: Before the head.
    """

    def __init__(
        self,
        norm: Callable[[int], nn.Module] = lambda _channels: nn.Identity(),
        bias: float | None = None,
        is_always_dropping: bool = False,
        dropout: float = 0.0,
        outputs: int = KINDS,
    ) -> None:
        super().__init__()
        self.dropout, self.is_always_dropping = dropout, is_always_dropping
        first, second = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
        for layer in (first, second):
            if bias is not None:
                nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type] # both have one
        self.body = nn.Sequential(
            *(first, norm(12), nn.ReLU(), nn.MaxPool2d(2), second, norm(24), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten())
        )
        self.head = nn.Linear(96, outputs)

    def forward(self, x: Tensor) -> Tensor:
        state = functional.dropout(self.body(x), self.dropout, training=self.training or self.is_always_dropping)
        answer: Tensor = self.head(state)
        return answer


def own_statistics(channels: int) -> nn.Module:
    """Return a batch norm that uses each batch's own statistics in evaluation, too."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


class Hearing(nn.Module):
    """Convolutions over a window."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 24, 7), nn.ReLU(), nn.Conv1d(24, 32, 7), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()
        )
        self.head = nn.Linear(32, outputs)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.body(x[:, None]))
        return answer


class Plain(nn.Module):
    """A plain recurrent network over 60 numbers, read from the last to the first, with an orthogonal matrix times a gain."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.cell, self.head = nn.RNN(1, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 1)
        nn.init.orthogonal_(self.cell.weight_hh_l0, gain=gain)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.cell(x.flip(1)[..., None])[0][:, -1])
        return answer


class Gated(nn.Module):
    """A gated recurrent network over 60 numbers, read from the last to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.cell(x.flip(1)[..., None])[0][:, -1])
        return answer


class Deep(nn.Module):
    """Thirty residual blocks, each of which begins as nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 48), nn.Linear(48, 10)
        blocks = [nn.Sequential(nn.LayerNorm(48), nn.Linear(48, 48), nn.GELU(), nn.Linear(48, 48)) for _ in range(30)]
        for block in blocks:
            nn.init.zeros_(block[3].weight)
            nn.init.zeros_(block[3].bias)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        answer: Tensor = self.last(x)
        return answer


class Adapted(nn.Module):
    """A linear layer that is held, and beside it a product of two small matrices, one of them zero at first (Hu et al., 2021)."""

    def __init__(self, held: nn.Linear, rank: int = 12) -> None:
        super().__init__()
        self.held = held.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, held.in_features) / held.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(held.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.held(x) + x @ self.down.T @ self.up.T
        return answer


def digits(is_turned: bool) -> tuple[Tensor, Tensor]:
    """Return digits, as they are or turned by a right angle."""
    x, y = load_digits(return_X_y=True)
    pictures = torch.from_numpy(x).float().reshape(-1, 8, 8) / 16
    return (pictures.rot90(1, (1, 2)) if is_turned else pictures).flatten(1), torch.from_numpy(y)


def turned_digits() -> Splits:
    x, y = digits(is_turned=True)
    places = torch.from_numpy(np.random.default_rng(0).permutation(len(y)))
    return Splits((x[places[:1300]], y[places[:1300]]), (x[places[1300:]], y[places[1300:]]))


def adapted() -> nn.Module:
    """Return a network that knows digits as they are, and is made ready to learn turned ones by adapters."""
    known = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer, (x, y) = torch.optim.Adam(known.parameters(), lr=1e-2), digits(is_turned=False)
    for _ in range(60):
        optimizer.zero_grad()
        functional.cross_entropy(known(x), y).backward()
        optimizer.step()
    return nn.Sequential(*(Adapted(layer) if isinstance(layer, nn.Linear) else layer for layer in known))


# --- tasks ----------------------------------------------------------------------------------------


class Hoarding(Labelled):
    """Keeps the feature maps of each step for a picture that is never drawn.

    Args:
        is_reduced: Whether a number is kept in place of the maps.
    """

    def __init__(self, is_reduced: bool) -> None:
        super().__init__(lambda: pictures({"rows": 1280}), Wide)
        self.is_reduced, self.seen = is_reduced, list[Any]()

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        assert isinstance(model, Wide)
        maps = model.body(batch[0])
        if model.training:
            self.seen.append(maps.mean().item() if self.is_reduced else maps)
        return model.head(maps), batch[1]


class Wide(nn.Module):
    """Convolutions of many channels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(128, KINDS))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.body(x))
        return answer


class Contrasting(Own):
    """Brings two noisy views of one picture together and those of others apart (InfoNCE, van den Oord et al., 2018)."""

    metric = "accuracy"

    def __init__(self, splits: Callable[[], Splits], model: Callable[[], nn.Module]) -> None:
        super().__init__(splits, model, functional.cross_entropy)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        views = (functional.normalize(model(batch[0] + 0.3 * torch.randn_like(batch[0]))) for _ in range(2))
        first, second = views
        return first @ second.T / 0.1, torch.arange(len(first))

    def accumulate(self, state: Any, outputs: Tensor, targets: Tensor) -> Any:
        hits, rows = state or (0, 0)
        return hits + int((outputs.argmax(1) == targets).sum()), rows + len(targets)

    def compute(self, state: Any) -> dict[str, float]:
        return {"accuracy": state[0] / state[1]}


class Filling(nn.Module):
    """Fills what is erased from a picture, and gives the loss of each picture."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 24, 5, padding=2), nn.GELU(), nn.Conv2d(24, 24, 5, padding=2), nn.GELU(), nn.Conv2d(24, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        erased = torch.rand_like(x) < 0.3
        errors = (self.body(x * ~erased) - x).square() * erased
        losses: Tensor = errors.flatten(1).sum(1) / erased.flatten(1).sum(1).clamp(min=1)
        return losses


class Unsupervised(Own):
    """Trains by a loss that the model makes itself; there are no targets."""

    metric = "explained"

    def __init__(self) -> None:
        super().__init__(lambda: both(noise=0.1), Filling, lambda losses, _none: losses.mean())

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        losses = model(batch[0])
        return losses, torch.zeros_like(losses)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {"explained": 1 - float(outputs.mean()) / 0.092}  # the variance of a pixel


class Players(nn.Module):
    """A generator of points and a critic that tells them from real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, real: Tensor) -> Answers:
        real = real.detach().requires_grad_(torch.is_grad_enabled())
        made = self.maker(torch.randn_like(real))
        held = {name: one.detach() for name, one in self.critic.named_parameters()}
        told = torch.func.functional_call(self.critic, held, (made,))
        trusted = self.critic(real)
        return trusted, self.critic(made.detach()), told, made, slope(trusted, real)


def slope(trusted: Tensor, real: Tensor) -> Tensor:
    """Return how steep the critic is at each real point, squared (Mescheder et al., 2018); zero where nothing is trained."""
    if not real.requires_grad:
        return torch.zeros(len(real))
    gradient: Tensor = torch.autograd.grad(trusted.sum(), real, create_graph=True)[0]
    return gradient.square().sum(1)


def game_loss(outputs: Answers, _real: Tensor) -> Tensor:
    """Return the losses of both players (Goodfellow et al., 2014, without saturation), which meet at 3 log 2."""
    trusted, made, told, _points, slopes = outputs
    return (functional.softplus(-trusted) + functional.softplus(made) + functional.softplus(-told)).mean() + slopes.mean()


def cloud(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    draws = np.random.default_rng(seed)
    x = torch.from_numpy(draws.standard_normal((rows, 2), dtype=np.float32)) * torch.tensor([1.0, 0.4]) + torch.tensor(
        [2.0, -1.0]
    )
    return x, x


class Game(Own):
    """Trains two players against one another; the fit is that of mean and deviation of what is made."""

    metric = "fit"

    def __init__(self) -> None:
        super().__init__(lambda: Splits(cloud(1024, 1), cloud(512, 2)), Players, game_loss)

    def forward(self, model: nn.Module, batch: Any) -> tuple[Any, Any]:
        return model(batch[0]), batch[1]

    def metrics(self, outputs: Any, targets: Tensor) -> dict[str, float]:
        made = outputs[3]
        return {"fit": -float((made.mean(0) - targets.mean(0)).abs().sum() + (made.std(0) - targets.std(0)).abs().sum())}


# --- cases ----------------------------------------------------------------------------------------

UNLEARNED = "STALL UNDERFIT CONST_PRED UNDERTRAINED"
UNSTABLE = "EXPLODING LOSS_SPIKE OSCILLATING DIVERGE NAN_LOSS DYING_RELU DEAD_LAYER"


def flat_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return squared errors by an expression, which broadcasts [N, 1] with [N]."""
    return ((outputs - targets) ** 2).mean()


class Six(Reported):
    """Tells six classes apart."""

    classes = 6


DRAWN: list[Pair] = [
    pair(
        *("F121", "pictures, dropout in evaluation too", ("EVAL_DROPOUT", "UNDERFIT STALL OSCILLATING UNDERTRAINED")),
        *(lambda: Reported(pictures, lambda: Seeing(dropout=0.8, is_always_dropping=True)), by(adam(5e-3), 25)),
        twin=lambda: Reported(pictures, lambda: Seeing(dropout=0.8)),
    ),
    pair(
        *(
            "F122",
            "pictures by class, each batch's statistics in evaluation",
            ("BATCH_STATS", "EVAL_MISMATCH OVERFIT OSCILLATING"),
        ),
        *(
            lambda: Reported(lambda: pictures({}, {"rows": 1024, "kind": in_parts(1024)}), lambda: Seeing(own_statistics)),
            by(adam(5e-3), 15),
        ),
        twin=lambda: Reported(lambda: pictures({}, {"rows": 1024, "kind": in_parts(1024)}), lambda: Seeing(nn.BatchNorm2d)),
    ),
    pair(
        *("F123", "pictures, those for validation as bytes", ("SHIFT", f"OVERFIT {UNLEARNED} INPUT_SCALE EVAL_MISMATCH")),
        *(lambda: Reported(lambda: pictures({"alter": of_units}, {"alter": of_bytes}), Seeing), by(adam(1e-2), 15)),
        twin=lambda: Reported(lambda: both(alter=of_units), Seeing),
    ),
    pair(
        *("F124", "windows of one patient in both splits", ("GROUP_SPLIT", "LEAKAGE")),
        *(lambda: Labelled(lambda: patients(is_by_patient=False), Hearing), by(adam(3e-3), 30)),
        twin=lambda: Labelled(lambda: patients(is_by_patient=True), Hearing),
    ),
    pair(
        *("F125", "pictures, half of those for validation trained on", ("LEAKAGE", "OVERFIT")),
        *(
            lambda: Labelled(lambda: pictures({"noise": 0.8, "rows": 240}, {"noise": 0.8, "first": 120}), Seeing),
            by(adam(3e-3), 40),
        ),
        twin=lambda: Labelled(lambda: pictures({"noise": 0.8, "rows": 240}, {"noise": 0.8}), Seeing),
    ),
    pair(
        *("F126", "pictures, 40 % wrong labels", ("LABEL_NOISE", f"OVERFIT {UNLEARNED}")),
        *(lambda: Reported(lambda: both(label=guessed(0.4)), Seeing), by(adam(3e-3), 40)),
        twin=lambda: Reported(pictures, Seeing),
    ),
    pair(
        *(
            "F127",
            "pictures, weight decay 0.5",
            ("UNDERFIT", "STALL CONST_PRED VANISHING LR_LOW DEAD_LAYER DYING_RELU OVER_REG weights_decayed"),
        ),
        *(lambda: Reported(pictures, Seeing), by(adam(2e-3, decay=0.5), 15)),
        cured=by(adam(2e-3), 15),
    ),
    pair(
        *("F128", "pictures, an optimizer of the biases alone", ("FROZEN", f"{UNLEARNED} LR_LOW")),
        lambda: Reported(pictures, Seeing, updates=biases_alone),
        by({"name": "own"}, 20),
        twin=lambda: Reported(pictures, Seeing, updates=all_weights),
    ),
    pair(
        *("F129", "a folder by class, its last fifth for validation", ("ONE_CLASS", f"OVERFIT IMBALANCE CONST_PRED {UNLEARNED}")),
        *(lambda: Labelled(lambda: cut(in_parts(600)), Seeing), by(adam(2e-3), 12)),
        twin=lambda: Labelled(lambda: cut(by_turns), Seeing),
    ),
    pair(
        *("F130", "every place reads the first picture", ("CONST_INPUT", f"{UNLEARNED} OSCILLATING LABEL_NOISE")),
        lambda: Labelled(lambda: Splits(FirstOnly(TRAIN), FirstOnly(HELD_OUT, AT)), Seeing),
        by(adam(2e-3), 12),
        twin=lambda: Labelled(pictures, Seeing),
    ),
    pair(
        *("F131", "pictures, augmented for validation alone", ("VALIDATION_AUGMENTED", "SHIFT OVERFIT OSCILLATING")),
        *(lambda: Reported(lambda: pictures({}, {"alter": roughly}), Seeing), by(adam(2e-3), 20)),
        twin=lambda: Reported(pictures, Seeing),
    ),
    pair(
        *("F132", "sequences, a recurrent matrix of gain 1.5", ("EXPLODING", f"LR_HIGH BAD_INIT {UNLEARNED} {UNSTABLE} OVERFIT")),
        *(lambda: Measured(series, lambda: Plain(gain=1.5)), by(adam(2e-3), 15)),
        twin=lambda: Measured(series, Plain),
    ),
    pair(
        *("F133", "pictures, rectifiers that begin at -4", ("DYING_RELU", f"{UNLEARNED} DEAD_LAYER VANISHING LR_LOW BAD_INIT")),
        *(lambda: Reported(pictures, lambda: Seeing(bias=-4.0)), by(sgd(0.05, 0.9), 15)),
        twin=lambda: Reported(pictures, lambda: Seeing(bias=0.0)),
    ),
    pair(
        *("F134", "feature maps of each step kept", ("MEMORY", "PIPELINE")),
        *(lambda: Hoarding(is_reduced=False), by(adam(2e-3), 12)),
        twin=lambda: Hoarding(is_reduced=True),
    ),
    pair(
        *("F135", "pictures, one of them damaged", ("LOSS_SPIKE", f"INPUT_SCALE LR_HIGH {UNSTABLE} {UNLEARNED}")),
        *(lambda: Reported(lambda: pictures({"alter": damaged}), Seeing), by(adam(2e-3), 20, batch_size=32)),
        twin=lambda: Reported(pictures, Seeing),
    ),
    pair(
        *(
            "F136",
            "a stream of pictures, class after class",
            ("NO_SHUFFLE", f"{UNLEARNED} {UNSTABLE} LR_HIGH VANISHING OVERFIT PIPELINE"),
        ),
        *(lambda: Labelled(lambda: streamed(in_parts(TRAIN)), Seeing), by(adam(2e-3), 15, batch_size=32)),
        twin=lambda: Labelled(lambda: streamed(by_turns), Seeing),
    ),
    pair(
        *("F137", "pictures in units of 1e4", ("INPUT_SCALE", f"{UNLEARNED} {UNSTABLE} LR_HIGH VANISHING BAD_INIT OVERFIT")),
        *(lambda: Reported(lambda: both(alter=times(1e4)), Seeing), by(sgd(0.02, 0.9), 15)),
        twin=lambda: Reported(pictures, Seeing),
    ),
    pair(
        *(
            "F138",
            "sequences in units of 1e4",
            ("INPUT_SCALE", f"{UNLEARNED} {UNSTABLE} LR_HIGH SATURATION VANISHING BAD_INIT OVERFIT"),
        ),
        *(lambda: Measured(lambda: series(scale=1e4), Gated), by(adam(1e-2), 15)),
        twin=lambda: Measured(series, Gated),
    ),
    pair(
        *("F139", "sequences, every output with every target", ("BROADCAST", f"{UNLEARNED} VANISHING LR_LOW")),
        *(lambda: Measured(lambda: series(is_flat=True), Gated, flat_squares), by(adam(1e-2), 15)),
        twin=lambda: Measured(series, Gated, flat_squares),
    ),
]

PAIRS: list[Pair] = [replace(one, case=waiting(one.case)) for one in DRAWN]

IN_MEMORY = [
    healthy(
        *("H121", "two players against one another", Game),
        by({"name": "adam", "lr": 3e-3, "betas": [0.0, 0.99]}, 60, schedule={"name": "cosine"}),
    ),
    healthy("H124", "digits turned, adapters that begin at zero", lambda: Labelled(turned_digits, adapted), by(adam(5e-3), 25)),
    healthy("H125", "thirty residual blocks that begin as nothing", lambda: Labelled(turned_digits, Deep), by(adam(1e-3), 12)),
]
READ = [
    healthy("H122", "erased pixels filled, a loss without targets", Unsupervised, by(adam(3e-3), 12)),
    healthy(
        *("H123", "two views of a picture, contrasted", lambda: Contrasting(lambda: both(noise=0.5), lambda: Seeing(outputs=24))),
        by(adam(3e-3), 20),
    ),
    healthy(
        *("H126", "six classes with a long tail"),
        lambda: Six(lambda: Splits(Tailed(sum(LONG_TAIL)), Tailed(sum(LONG_TAIL), 20 * AT)), lambda: Seeing(outputs=6)),
        by(adam(3e-3), 40),
    ),
    healthy(
        *("H127", "pictures augmented so that training is the harder split"),
        lambda: Reported(lambda: pictures({"alter": gently}), Seeing),
        by(adam(3e-3), 40),
    ),
    healthy("H128", "pictures, dropout 0.5", lambda: Reported(pictures, lambda: Seeing(dropout=0.5)), by(adam(3e-3), 20)),
]
HEALTHY = [*IN_MEMORY, *map(waiting, READ)]
