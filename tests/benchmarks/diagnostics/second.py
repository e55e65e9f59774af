"""The second set: other data, models and optimizers than the first, half of it healthy; no rule is made by it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.feature_extraction.text import CountVectorizer
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.diagnostics import data, models, tasks
from tests.benchmarks.diagnostics.case import Case, adam, by, faulty, healthy, hook, sgd
from tests.benchmarks.diagnostics.data import Parts, classified, quantities, table
from tests.benchmarks.diagnostics.models import filled, perceptron
from tests.benchmarks.diagnostics.tasks import Classes, InOrder, OneBadBatch, Two, Values

# --- data -----------------------------------------------------------------------------------------


def waves(rows: int = 900, noise: float = 0.6) -> Parts:
    """Return 48 moments of a sine, whose class is one of three frequencies."""
    draws = np.random.default_rng(7)
    kinds = draws.integers(0, 3, rows)
    phases, moments = draws.uniform(0, 2 * np.pi, (rows, 1)), np.linspace(0, 2 * np.pi, 48)
    x = np.sin(np.array([2.0, 3.0, 5.0])[kinds][:, None] * moments + phases)
    return classified(x + noise * draws.standard_normal(x.shape), kinds)


def forecast(rows: int = 900, length: int = 24) -> Parts:
    """Return pieces of an autoregressive series of second order, each with the value that follows it."""
    draws, series = np.random.default_rng(8), [0.0, 0.0]
    for _ in range(rows + length):
        series.append(1.6 * series[-1] - 0.8 * series[-2] + 0.3 * draws.standard_normal())
    pieces = np.lib.stride_tricks.sliding_window_view(np.array(series), length + 1)[:rows]
    return quantities(pieces[:, :-1], pieces[:, -1])


def orders(rows: int = 1200, length: int = 12) -> Parts:
    """Return sequences of eight symbols, whose class tells whether the first symbol comes again."""
    draws = np.random.default_rng(9)
    x = draws.integers(0, 8, (rows, length))
    y = np.arange(rows) % 2
    for row in np.flatnonzero(y == 0):
        x[row, 1:] = (x[row, 0] + 1 + draws.integers(0, 7, length - 1)) % 8
    for row in np.flatnonzero(y == 1):
        x[row, draws.integers(1, length, 2)] = x[row, 0]
    parts = classified(x, y)
    return parts.each(lambda x, y: (x.long(), y))


def texts(rows: int, words: int, clear: float) -> Parts:
    """Return bags of words and pairs of words, of sentences that prefer some words by their class."""
    draws = np.random.default_rng(10)
    kinds = np.arange(rows) % 4
    liked = draws.permutation(words).reshape(4, -1)
    lines = []
    for kind in kinds:
        own = draws.random(20) < clear
        drawn = np.where(own, draws.choice(liked[kind], 20), draws.integers(0, words, 20))
        lines.append(" ".join(f"w{word}" for word in drawn))
    bags = CountVectorizer(ngram_range=(1, 2), max_features=600).fit_transform(lines).toarray()
    return classified(bags.astype(np.float64), kinds)


def rings(rows: int = 1200) -> Parts:
    """Return three rings around one another."""
    draws = np.random.default_rng(11)
    kinds = draws.integers(0, 3, rows)
    angles, radius = draws.uniform(0, 2 * np.pi, rows), 0.5 + 0.7 * kinds + 0.12 * draws.standard_normal(rows)
    return classified(np.stack([radius * np.cos(angles), radius * np.sin(angles)], 1), kinds)


def shells(rows: int = 1600) -> Parts:
    return classified(*datasets.make_gaussian_quantiles(n_samples=rows, n_features=4, n_classes=3, random_state=12))


def roll() -> Parts:
    return quantities(*datasets.make_swiss_roll(1000, noise=0.3, random_state=13))


def linear_quantities(standardize_targets: bool) -> Parts:
    x, y = datasets.make_regression(800, 12, n_informative=8, noise=20.0, random_state=14)
    return quantities(x, y, standardize_targets)


def tumours() -> Parts:
    return table(datasets.load_breast_cancer)


def raw_tumours() -> Parts:
    return classified(*datasets.load_breast_cancer(return_X_y=True))


def wines() -> Parts:
    return table(datasets.load_wine)


def diabetes() -> Parts:
    return data.diabetes()


def with_a_near_copy(x: Tensor, y: Tensor) -> data.Rows:
    """Return inputs with a column that is the class in other units."""
    return torch.cat([x, 2.5 * y[:, None].float() - 1.0], 1), y


# --- models ---------------------------------------------------------------------------------------


def conv1d(norm: bool = True) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 48)), nn.Conv1d(1, 16, 5, padding=2), *([nn.BatchNorm1d(16)] if norm else []), nn.SiLU()),
        *(nn.MaxPool1d(2), nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten()),
        nn.Linear(128, 3),
    )


def gru(inputs: int, outputs: int) -> nn.Module:
    return models.Recurrent(nn.GRU(inputs, 32, batch_first=True), outputs)


class Reader(nn.Module):
    """A small transformer over symbols.

    Args:
        detached: Whether the head's gradient does not reach what is below.
    """

    def __init__(self, detached: bool = False) -> None:
        super().__init__()
        self.detached = detached
        self.embed, self.places = nn.Embedding(8, 32), nn.Parameter(0.1 * torch.randn(12, 32))
        layers = [nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)]
        self.blocks, self.head = nn.Sequential(*layers), nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = self.blocks(self.embed(x) + self.places)[:, 0]
        answer: Tensor = self.head(state.detach() if self.detached else state)
        return answer


def normed(sizes: tuple[int, ...]) -> nn.Module:
    """Return a perceptron with layer norms."""
    return nn.Sequential(
        *(nn.Linear(sizes[0], sizes[1]), nn.LayerNorm(sizes[1]), nn.ELU()),
        *(nn.Linear(sizes[1], sizes[2]), nn.LayerNorm(sizes[2]), nn.ELU(), nn.Linear(sizes[2], sizes[3])),
    )


def deep_tanh() -> nn.Module:
    return filled(perceptron([2, *[12] * 14, 3], nn.Tanh), models.normal(0.12))


# --- cases ----------------------------------------------------------------------------------------


def optimizer(name: str, lr: float, **others: Any) -> dict[str, Any]:
    return {"name": name, "lr": lr, **others}


def of(make: Callable[[], Parts], *sizes: int, **others: Any) -> Callable[[], Classes]:
    """Return what makes a classification by a perceptron."""
    return lambda: Classes(make, lambda: perceptron(sizes, **others))


huber: tasks.Loss = functools.partial(functional.smooth_l1_loss, beta=0.5)
UNLEARNED = "STALL UNDERFIT CONST_PRED UNDERTRAINED"
UNSTABLE = "EXPLODING LR_HIGH LOSS_SPIKE OSCILLATING DIVERGE NAN_LOSS DYING_RELU DEAD_LAYER"

HEALTHY = [
    healthy("H51", "tumours, tanh, RMSprop", of(tumours, 30, 24, 2, activation=nn.Tanh), by(optimizer("rmsprop", 1e-3), 25)),
    healthy(
        *("H52", "wine, one cycle", of(wines, 13, 20, 3)),
        by({**sgd(0.1, 0.9), "nesterov": True}, 40, batch_size=16, schedule={"name": "one_cycle"}),
    ),
    healthy(
        *("H53", "diabetes, Lion", lambda: Values(diabetes, lambda: perceptron([10, 8, 1]), huber)),
        by(optimizer("lion", 2e-3, weight_decay=0.01), 15, batch_size=32),
    ),
    healthy(
        *("H54", "waves, convolutions, AdamW", lambda: Classes(waves, conv1d)),
        by(optimizer("adamw", 2e-3), 25, schedule={"name": "cosine", "warmup_epochs": 2}),
    ),
    healthy(
        *("H55", "waves, GRU, clipped", lambda: Classes(lambda: waves(noise=0.3), lambda: gru(4, 3))),
        by(adam(5e-3), 30, clip={"norm": 1.0}),
    ),
    healthy(
        *("H56", "symbols, transformer", lambda: Classes(orders, Reader)),
        by(optimizer("adamw", 1e-3), 40, schedule={"name": "cosine", "warmup_epochs": 2}),
    ),
    healthy("H57", "texts, Adagrad", of(lambda: texts(1600, 80, 0.5), 600, 32, 4), by(optimizer("adagrad", 0.02), 10)),
    healthy("H58", "rings, momentum", of(rings, 2, 40, 40, 3, activation=nn.SiLU), by(sgd(0.05, 0.9), 30)),
    healthy("H59", "a series, GRU", lambda: Values(forecast, lambda: gru(1, 1)), by(adam(5e-3), 30)),
    healthy("H60", "shells, dropout, NAdam", of(shells, 4, 64, 64, 3, dropout=0.1), by(optimizer("nadam", 2e-3), 50)),
    healthy(
        "H61",
        "a roll, layer norms, RAdam",
        lambda: Values(roll, lambda: normed((3, 32, 32, 1))),
        by(optimizer("radam", 3e-3), 50),
    ),
    healthy(
        *("H62", "tumours, one class five times the other"),
        lambda: Two(lambda: tumours().each(data.rarer(0.33, 0)), lambda: perceptron([30, 16, 1])),
        by(adam(2e-3), 25, batch_size=32),
    ),
]

FAULTY = [
    faulty(
        *("F51", "tumours as measured", "INPUT_SCALE", f"{UNLEARNED} {UNSTABLE} BAD_INIT VANISHING LR_LOW OVERFIT"),
        *(of(raw_tumours, 30, 32, 32, 2), by(sgd(0.02), 30)),
    ),
    faulty(
        *("F52", "shells, too large steps of RMSprop", "LR_HIGH", f"{UNLEARNED} {UNSTABLE} VANISHING BAD_INIT"),
        *(of(shells, 4, 64, 64, 3), by(optimizer("rmsprop", 0.5), 40)),
    ),
    faulty(
        *("F53", "waves, too small steps", "LR_LOW", UNLEARNED),
        *(lambda: Classes(waves, conv1d), by(optimizer("adamw", 1e-7), 20)),
    ),
    faulty(
        *("F54", "few texts, wide model", "OVERFIT", "STALL LABEL_NOISE"),
        *(of(lambda: texts(160, 160, 0.15), 600, 256, 4), by(adam(2e-3), 40, batch_size=16)),
    ),
    faulty(
        *("F55", "rings, a third wrong targets", "LABEL_NOISE", "OVERFIT STALL UNDERFIT UNDERTRAINED"),
        lambda: Classes(lambda: rings().in_training(data.wrong_targets(0.35, 1)), lambda: perceptron([2, 64, 64, 3], nn.SiLU)),
        by(optimizer("nadam", 2e-3), 60),
    ),
    faulty(
        *("F56", "symbols, a detached transformer", "DEAD_LAYER", f"FROZEN {UNLEARNED} VANISHING LR_LOW"),
        *(lambda: Classes(orders, lambda: Reader(detached=True)), by(optimizer("adamw", 1e-3), 25)),
    ),
    faulty(
        *("F57", "a series, every output with every target", "BROADCAST", f"{UNLEARNED} VANISHING"),
        lambda: Values(lambda: forecast().each(data.flat_targets), lambda: gru(1, 1), tasks.broadcast_loss),
        by(adam(5e-3), 20),
    ),
    faulty(
        *("F58", "rings, 14 layers of tanh with small weights", "VANISHING", f"{UNLEARNED} LR_LOW"),
        *(lambda: Classes(rings, deep_tanh), by(sgd(0.05, 0.9), 30)),
    ),
    faulty(
        *("F59", "raw quantities, too large steps", "NAN_LOSS", f"{UNLEARNED} {UNSTABLE} BAD_INIT"),
        lambda: Values(lambda: linear_quantities(False), lambda: perceptron([12, 32, 1])),
        by(sgd(0.5, 0.9), 20),
    ),
    faulty(
        *("F60", "wine with a column that is the class", "LEAKAGE", ""),
        lambda: Classes(lambda: wines().each(with_a_near_copy), lambda: perceptron([14, 16, 3])),
        by(optimizer("lion", 1e-3), 40, batch_size=16),
    ),
    faulty(
        *("F61", "shells, one class in sixty", "IMBALANCE", f"{UNLEARNED} OVERFIT DYING_RELU"),
        lambda: Classes(lambda: shells(2400).each(data.rarer(0.017, 2)), lambda: perceptron([4, 32, 3])),
        by(adam(1e-3), 25),
    ),
    faulty(
        *("F62", "waves, a sigmoid before the cross-entropy", "OUT_ACT", f"{UNLEARNED} VANISHING SATURATION"),
        *(lambda: Classes(waves, lambda: nn.Sequential(conv1d(), nn.Sigmoid())), by(adam(2e-3), 20)),
    ),
    faulty(
        *("F63", "waves, one bad batch", "LOSS_SPIKE", "EXPLODING OSCILLATING DYING_RELU DIVERGE"),
        lambda: OneBadBatch(waves, lambda: conv1d(norm=False), bad_step=15 * 11 + 5),
        by(optimizer("adamw", 1e-3), 30),
    ),
    faulty(
        *("F64", "tumours, steps for the head alone", "FROZEN", f"{UNLEARNED} LR_LOW OSCILLATING"),
        *(of(tumours, 30, 24, 24, 2), by(sgd(0.05), 25, callbacks=hook("Forgetting", prefix="4."))),
    ),
    faulty(
        *("F65", "a stream of waves, class after class", "NO_SHUFFLE"),
        f"{UNLEARNED} {UNSTABLE} VANISHING OVERFIT PIPELINE EVAL_MISMATCH",
        lambda: InOrder(lambda: waves().each(data.in_order_of_class), lambda: conv1d(norm=False)),
        by(adam(2e-3), 15, batch_size=32),
    ),
    faulty(
        *("F66", "shells, equal weights", "SYMMETRY", f"{UNLEARNED} LR_LOW VANISHING OSCILLATING"),
        lambda: Classes(shells, lambda: filled(perceptron([4, 32, 32, 3], nn.Tanh), lambda w: nn.init.constant_(w, 0.05))),
        by(optimizer("rmsprop", 1e-3), 30),
    ),
    faulty(
        *("F67", "a series, gradients of the wrong sign", "DIVERGE", f"{UNLEARNED} {UNSTABLE} SATURATION VANISHING"),
        *(lambda: Values(forecast, lambda: models.ascending(gru(1, 1))), by(adam(5e-3), 20)),
    ),
    faulty(
        *("F68", "texts, too few epochs", "UNDERTRAINED", "UNDERFIT LR_LOW"),
        *(of(lambda: texts(1600, 80, 0.5), 600, 32, 4), by(sgd(0.02), 5)),
    ),
]

CASES: list[Case] = [*FAULTY, *HEALTHY]
