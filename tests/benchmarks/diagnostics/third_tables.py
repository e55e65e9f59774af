"""The third set's cases of tables: classes and quantities, as a user's own task reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional

from tests.benchmarks.diagnostics import data
from tests.benchmarks.diagnostics.case import adam, by, healthy, sgd
from tests.benchmarks.diagnostics.data import Parts, Rows, classified, quantities, table
from tests.benchmarks.diagnostics.models import perceptron
from tests.benchmarks.diagnostics.pairs import Measured, Pair, Splits, pair
from tests.benchmarks.diagnostics.tasks import Classes, Given, Two, Values, broadcast_loss

# --- data -----------------------------------------------------------------------------------------


def customers(rows: int = 1200) -> Parts:
    """Return two classes of eight informative columns among twelve."""
    made = datasets.make_classification(rows, 12, n_informative=8, n_redundant=2, class_sep=1.2, random_state=41)
    return classified(*made, standardize=True)


def tumours(is_scaled: bool) -> Parts:
    """Return tumours by standardized columns; those for validation perhaps as they were measured."""
    scaled, raw = table(datasets.load_breast_cancer), classified(*datasets.load_breast_cancer(return_X_y=True))
    return scaled if is_scaled else Parts(scaled.train, raw.validation)


def visits(is_by_patient: bool, count: int = 90, each: int = 8) -> Parts:
    """Return visits of patients; what is measured is mostly the patient's own, and tells little of the illness."""
    draws = np.random.default_rng(42)
    patient = np.repeat(np.arange(count), each)
    ill = draws.integers(0, 2, count)
    own = draws.standard_normal((count, 12)) + 0.5 * ill[:, None] * (np.arange(12) < 2)
    x = own[patient] + 0.15 * draws.standard_normal((len(patient), 12))
    order = np.arange(len(patient)) if is_by_patient else draws.permutation(len(patient))
    at = 2 * len(order) // 3 // each * each
    inputs, kinds = torch.from_numpy(x[order]).float(), torch.from_numpy(ill[patient][order])
    return Parts((inputs[:at], kinds[:at]), (inputs[at:], kinds[at:]))


def sorted_customers(is_sorted: bool) -> Parts:
    """Return customers whose last quarter is for validation, perhaps sorted by class before."""
    parts = customers(1800).each(data.rarer(0.45))
    x, y = (torch.cat(both) for both in zip(parts.train, parts.validation, strict=True))
    order = y.argsort(stable=True) if is_sorted else torch.from_numpy(np.random.default_rng(4).permutation(len(y)))
    x, y = x[order], y[order]
    at = 3 * len(y) // 4
    return Parts((x[:at], y[:at]), (x[at:], y[at:]))


def houses() -> Parts:
    return quantities(*datasets.make_friedman1(n_samples=900, n_features=10, noise=1.0, random_state=43))


def with_the_price(x: Tensor, y: Tensor) -> Rows:
    """Return the inputs with the target among them, in other units and rounded."""
    return torch.cat([x[:, :9], (3.1 * y + 0.4).mul(20).round() / 20], 1), y


def with_a_code(x: Tensor, y: Tensor) -> Rows:
    """Return the inputs with a code that was given by the class: 11 to 13, 21 to 23, 31 to 33."""
    code = 10 * (y + 1) + 1 + torch.arange(len(y)) % 3
    return torch.cat([x, (code.float()[:, None] - 20) / 8], 1), y


def few_wines() -> Parts:
    """Return 45 wines to train on by five of their columns, and the others for validation."""
    parts = table(datasets.load_wine)
    return parts.in_training(data.first_rows(45)).each(lambda x, y: (x[:, :5], y))


def of_one_price(x: Tensor, y: Tensor) -> Rows:
    """Return targets that an integer division made zero."""
    return x, (y * 100 + 900).long() // 1_000_000 + torch.zeros_like(y)


def contradicted(is_agreed: bool) -> Parts:
    """Return customers whom two people labelled, of whom one wrote the classes of a third of them the other way round."""
    parts = customers(900)
    x, y = parts.train
    other = y if is_agreed else torch.where(torch.from_numpy(np.random.default_rng(2).random(len(y)) < 0.7), 1 - y, y)
    near = x + 0.02 * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    return Parts((torch.cat([x, near]), torch.cat([y, other])), parts.validation)


def votes() -> Parts:
    """Return two classes of which nobody can tell more than 62 of 100 rows."""
    draws = np.random.default_rng(44)
    x = draws.standard_normal((6000, 4))
    return classified(x, np.where(draws.random(6000) < 0.62, x[:, 0] > 0, x[:, 0] <= 0).astype(np.int64))


def eighteen_irises() -> Parts:
    parts = table(datasets.load_iris)
    x, y = parts.train
    places = torch.cat([(y == kind).nonzero()[:6, 0] for kind in range(3)])
    return Parts((x[places], y[places]), parts.validation)


def raw_wines() -> Parts:
    return classified(*datasets.load_wine(return_X_y=True))


def drawn(make: Callable[[np.random.Generator, np.ndarray], np.ndarray], rows: int = 1600) -> Parts:
    """Return five columns, and a quantity that is drawn by what the first three of them say."""
    draws = np.random.default_rng(45)
    x = draws.standard_normal((rows, 5))
    y = make(draws, x @ np.array([1.0, -0.7, 0.4, 0.0, 0.0]))
    at = 3 * rows // 4
    inputs, known = torch.from_numpy(x).float(), torch.from_numpy(y).float()[:, None]
    return Parts((inputs[:at], known[:at]), (inputs[at:], known[at:]))


def heavy_tails() -> Parts:
    return drawn(lambda draws, mean: mean + 0.5 * draws.standard_t(1.5, len(mean)))


def counts() -> Parts:
    return drawn(lambda draws, mean: draws.poisson(np.exp(0.6 * mean + 0.5)))


def precise() -> Parts:
    """Return a quantity of which noise hides little."""
    return drawn(lambda draws, mean: 0.3 * mean + 0.03 * (1 + np.abs(mean)) * draws.standard_normal(len(mean)))


def claims() -> Parts:
    """Return amounts with a long tail, some of which are far above all others."""
    return drawn(lambda draws, mean: np.exp(0.5 * mean) * draws.lognormal(-0.5, 0.8, len(mean)))


# --- tasks ----------------------------------------------------------------------------------------


class Errors(Values):
    """Predicts quantities, and is judged by the mean absolute error."""

    metric = "mae"


class Quantiles(Given):
    """Predicts three quantiles of a quantity; reports how often it lies below the middle and between the outer ones."""

    targets = "values"
    metric = "within"
    levels = torch.tensor([0.1, 0.5, 0.9])

    def __init__(self, parts: Callable[[], Parts], model: Callable[[], nn.Module]) -> None:
        super().__init__(parts, model, self.pinball)

    def pinball(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of quantiles (Koenker and Bassett, 1978) of outputs [N, 3] and targets [N, 1]."""
        errors = targets - outputs
        return torch.maximum(self.levels * errors, (self.levels - 1) * errors).mean()

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        low, middle, high = outputs.T
        known = targets[:, 0]
        within = float(((known > low) & (known < high)).double().mean())
        return {"within": within, "below": float((known < middle).double().mean())}


class Likely(Values):
    """Predicts mean and logarithm of the variance of a quantity."""

    def __init__(self, parts: Callable[[], Parts], model: Callable[[], nn.Module]) -> None:
        super().__init__(parts, model, gaussian_loss)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return super().metrics(outputs[:, 0], targets)

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        return super().evaluation(outputs[:, 0], targets)


class Counting(Values):
    """Predicts the logarithm of a rate of counts."""

    def __init__(self, parts: Callable[[], Parts], model: Callable[[], nn.Module]) -> None:
        super().__init__(parts, model, functional.poisson_nll_loss)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return super().metrics(outputs.exp(), targets)

    def evaluation(self, outputs: Tensor, targets: Tensor) -> dict[str, Any]:
        return super().evaluation(outputs.exp(), targets)


def gaussian_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the negative logarithm of a normal density, which is below zero where the deviation is below 0.24."""
    return functional.gaussian_nll_loss(outputs[:, :1], targets, outputs[:, 1:].exp(), full=True)


class Dropping(nn.Module):
    """A perceptron with dropout before its head.

    Args:
        is_always_dropping: Whether dropout is called as a function, which knows no evaluation mode.
    """

    def __init__(self, inputs: int, outputs: int, is_always_dropping: bool) -> None:
        super().__init__()
        self.is_always_dropping = is_always_dropping
        self.body, self.head = perceptron([inputs, 48, 24], last=nn.ReLU()), nn.Linear(24, outputs)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(functional.dropout(self.body(x), 0.5, training=self.training or self.is_always_dropping))
        return answer


# --- cases ----------------------------------------------------------------------------------------

UNLEARNED = "STALL UNDERFIT CONST_PRED UNDERTRAINED"


def lowest(name: str) -> dict[str, Any]:
    """Return the key of a config for a metric that is better where it is smaller."""
    return {"metric": {"name": name, "mode": "min"}}


def of_customers(*sizes: int, last: nn.Module | None = None) -> Callable[[], Two]:
    return lambda: Two(customers, lambda: perceptron([12, *sizes, 1], last=last))


PAIRS: list[Pair] = [
    pair(
        *("F141", "customers, a sigmoid before the loss of logits", ("OUT_ACT", f"{UNLEARNED} VANISHING SATURATION LR_LOW")),
        *(of_customers(32, last=nn.Sigmoid()), by(adam(3e-3), 25)),
        twin=of_customers(32),
    ),
    pair(
        *("F142", "tumours, those for validation as measured", ("SHIFT", f"OVERFIT EVAL_MISMATCH INPUT_SCALE {UNLEARNED}")),
        *(lambda: Classes(lambda: tumours(False), lambda: perceptron([30, 24, 2])), by(adam(2e-3), 20)),
        twin=lambda: Classes(lambda: tumours(True), lambda: perceptron([30, 24, 2])),
    ),
    pair(
        *("F143", "visits of one patient in both splits", ("GROUP_SPLIT", "LEAKAGE")),
        *(lambda: Classes(lambda: visits(False), lambda: perceptron([12, 64, 64, 2])), by(adam(3e-3), 40)),
        twin=lambda: Classes(lambda: visits(True), lambda: perceptron([12, 64, 64, 2])),
    ),
    pair(
        *(
            "F144",
            "customers sorted by class, the last quarter for validation",
            ("ONE_CLASS", f"CONST_PRED IMBALANCE OVERFIT {UNLEARNED}"),
        ),
        *(lambda: Classes(lambda: sorted_customers(True), lambda: perceptron([12, 32, 2])), by(adam(3e-3), 20)),
        twin=lambda: Classes(lambda: sorted_customers(False), lambda: perceptron([12, 32, 2])),
    ),
    pair(
        *("F145", "houses, the price among the inputs", ("LEAKAGE", "")),
        *(lambda: Values(lambda: houses().each(with_the_price), lambda: perceptron([10, 32, 1])), by(adam(5e-3), 40)),
        twin=lambda: Values(houses, lambda: perceptron([10, 32, 1])),
    ),
    pair(
        *("F146", "45 wines with a code of their class", ("LEAKAGE", "")),
        *(
            lambda: Classes(lambda: few_wines().each(with_a_code), lambda: perceptron([6, 16, 3])),
            by(adam(1e-2), 40, batch_size=15),
        ),
        twin=lambda: Classes(few_wines, lambda: perceptron([5, 16, 3])),
    ),
    pair(
        *("F147", "houses, all of one price", ("CONST_TARGET", f"CONST_PRED {UNLEARNED} VANISHING")),
        lambda: Measured(lambda: splits(houses().each(of_one_price)), lambda: perceptron([10, 32, 1])),
        by(adam(5e-3), 20, **lowest("rmse")),
        twin=lambda: Measured(lambda: splits(houses()), lambda: perceptron([10, 32, 1])),
    ),
    pair(
        *("F148", "customers, of whom two people say the opposite", ("LABEL_NOISE", f"OVERFIT {UNLEARNED}")),
        *(lambda: Classes(lambda: contradicted(False), lambda: perceptron([12, 128, 128, 2])), by(adam(3e-3), 50)),
        twin=lambda: Classes(lambda: contradicted(True), lambda: perceptron([12, 128, 128, 2])),
    ),
    pair(
        *("F149", "houses, every price with every other", ("BROADCAST", f"{UNLEARNED} VANISHING LR_LOW")),
        *(
            lambda: Values(lambda: houses().each(data.flat_targets), lambda: perceptron([10, 32, 1]), broadcast_loss),
            by(adam(5e-3), 25),
        ),
        twin=lambda: Values(houses, lambda: perceptron([10, 32, 1])),
    ),
    pair(
        *("F150", "a regression, dropout in evaluation too", ("EVAL_DROPOUT", "UNDERFIT STALL OSCILLATING UNDERTRAINED")),
        *(lambda: Values(houses, lambda: Dropping(10, 1, is_always_dropping=True)), by(adam(5e-3), 40)),
        twin=lambda: Values(houses, lambda: Dropping(10, 1, is_always_dropping=False)),
    ),
    pair(
        *(
            "F151",
            "customers, weight decay 0.5",
            ("UNDERFIT", "STALL CONST_PRED VANISHING LR_LOW DEAD_LAYER DYING_RELU OVER_REG weights_decayed"),
        ),
        *(of_customers(32, 32), by(adam(3e-3, decay=0.5), 25)),
        cured=by(adam(3e-3), 25),
    ),
    pair(
        *("F152", "houses, too few epochs", ("UNDERTRAINED", "UNDERFIT LR_LOW")),
        *(lambda: Values(houses, lambda: perceptron([10, 64, 1])), by(sgd(2e-3), 6)),
        cured=by(sgd(2e-3), 150),
    ),
]


def splits(parts: Parts) -> Splits:
    return Splits(parts.train, parts.validation)


HEALTHY = [
    healthy("H141", "votes that nobody can foretell", lambda: Classes(votes, lambda: perceptron([4, 16, 2])), by(adam(2e-3), 12)),
    healthy(
        *("H142", "eighteen irises", lambda: Classes(eighteen_irises, lambda: perceptron([4, 16, 3]))),
        by(adam(1e-2), 60, batch_size=6),
    ),
    healthy(
        *(
            "H143",
            "heavy tails, absolute errors",
            lambda: Errors(heavy_tails, lambda: perceptron([5, 32, 1]), functional.l1_loss),
        ),
        by(adam(3e-3), 25, **lowest("mae")),
    ),
    healthy(
        *("H144", "wines as measured, batch norm in front"),
        lambda: Classes(raw_wines, lambda: nn.Sequential(nn.BatchNorm1d(13), *perceptron([13, 24, 3]))),
        by(adam(5e-3), 30, batch_size=32),
    ),
    healthy(
        "H145",
        "mean and variance, a loss below zero",
        lambda: Likely(precise, lambda: perceptron([5, 32, 2])),
        by(adam(5e-3), 40),
    ),
    healthy("H146", "counts", lambda: Counting(counts, lambda: perceptron([5, 32, 1])), by(adam(3e-3), 25)),
    healthy(
        *("H147", "three quantiles", lambda: Quantiles(heavy_tails, lambda: perceptron([5, 32, 3]))),
        by(adam(5e-3), 30),
    ),
    healthy(
        *("H148", "claims with a long tail, small batches, clipped"),
        lambda: Errors(claims, lambda: perceptron([5, 32, 1])),
        by(adam(2e-3), 20, batch_size=16, clip={"norm": 1.0}, **lowest("rmse")),
    ),
    healthy("H149", "dropout 0.5", lambda: Two(customers, lambda: perceptron([12, 64, 1], dropout=0.5)), by(adam(3e-3), 40)),
]
