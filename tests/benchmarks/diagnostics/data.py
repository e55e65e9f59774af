"""The data of the cases: training and validation rows, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

Rows = tuple[Tensor, Tensor]
Change = Callable[[Tensor, Tensor], Rows]


@dataclass(frozen=True)
class Parts:
    """Inputs and targets of both splits."""

    train: Rows
    validation: Rows

    def each(self, change: Change) -> Parts:
        return Parts(change(*self.train), change(*self.validation))

    def in_training(self, change: Change) -> Parts:
        return Parts(change(*self.train), self.validation)


def _inputs(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float32)


def _classes(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int64)


def _quartered(x: np.ndarray, y: np.ndarray, by_class: bool = True) -> list[np.ndarray]:
    """Return inputs and targets of three quarters of the rows and of the last quarter: x, x, y, y."""
    parts: list[np.ndarray] = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y if by_class else None)
    return parts


def classified(x: np.ndarray, y: np.ndarray, standardize: bool = False) -> Parts:
    """Return a quarter of each class for validation and the others to train on."""
    train, validation, *targets = _quartered(x, y)
    if standardize:
        scaler = StandardScaler().fit(train)
        train, validation = scaler.transform(train), scaler.transform(validation)
    return Parts((_inputs(train), _classes(targets[0])), (_inputs(validation), _classes(targets[1])))


def digits(largest: float = 1.0) -> Parts:
    """Return the pictures of digits as 64 numbers from 0 to `largest`."""
    x, y = datasets.load_digits(return_X_y=True)
    return classified(x * (largest / 16), y)


def table(load: Callable[..., Any]) -> Parts:
    """Return one of scikit-learn's tables with classes, standardized."""
    return classified(*load(return_X_y=True), standardize=True)


def moons(noise: float, rows: int = 1000) -> Parts:
    return classified(*datasets.make_moons(rows, noise=noise, random_state=0))


def _cut(x: np.ndarray, y: np.ndarray, at: int) -> Parts:
    return Parts((_inputs(x[:at]), _classes(y[:at])), (_inputs(x[at:]), _classes(y[at:])))


def blobs(spread: float = 2.0, scale: float = 1.0, seed: int = 2) -> Parts:
    """Return three clouds of points in the plane."""
    x, y = datasets.make_blobs(1000, centers=3, n_features=2, cluster_std=spread, random_state=seed)
    return _cut(scale * x, y, 700)


def circles(scale: float = 1.0, noise: float = 0.1) -> Parts:
    """Return a ring of points around another."""
    x, y = datasets.make_circles(1000, noise=noise, random_state=1)
    return _cut(scale * x, y, 700)


def negative_inputs() -> Parts:
    """Return four numbers from -1 to 0, of which the first decides the class."""
    x = np.random.default_rng(0).uniform(-1, 0, (2000, 4))
    return _cut(x, x[:, 0] > -0.5, 1500)


def long_sequences() -> Parts:
    """Return 100 numbers whose first one's sign is the class."""
    x = np.random.default_rng(0).standard_normal((600, 100))
    return _cut(x, x[:, 0] > 0, 450)


def quantities(x: np.ndarray, y: np.ndarray, standardize_targets: bool = True) -> Parts:
    """Return standardized inputs and one target for each row."""
    train, validation, *targets = _quartered(x, y, by_class=False)
    scaler = StandardScaler().fit(train)
    middle, size = (targets[0].mean(), targets[0].std()) if standardize_targets else (0.0, 1.0)
    known, asked = (_inputs((part - middle) / size)[:, None] for part in targets)
    return Parts((_inputs(scaler.transform(train)), known), (_inputs(scaler.transform(validation)), asked))


def diabetes(standardize_targets: bool = True) -> Parts:
    return quantities(*datasets.load_diabetes(return_X_y=True), standardize_targets)


def friedman() -> Parts:
    return quantities(*datasets.make_friedman1(n_samples=800, noise=0.5, random_state=0))


# --- what may be wrong with them ------------------------------------------------------------------


def scaled(factor: float) -> Change:
    return lambda x, y: (factor * x, y)


def inverted(x: Tensor, y: Tensor) -> Rows:
    """Return pictures with black and white exchanged."""
    return 1 - x, y


def to_itself(x: Tensor, _y: Tensor) -> Rows:
    return x, x


def flat_targets(x: Tensor, y: Tensor) -> Rows:
    return x, y[:, 0]


def with_target(x: Tensor, y: Tensor) -> Rows:
    """Return the inputs with the answer among them."""
    return torch.cat([x, y[:, None].float()], 1), y


def with_a_gap(x: Tensor, y: Tensor) -> Rows:
    x = x.clone()
    x[5, 3] = torch.nan
    return x, y


def in_order_of_class(x: Tensor, y: Tensor) -> Rows:
    order = y.argsort(stable=True)
    return x[order], y[order]


def shuffled_targets(x: Tensor, y: Tensor) -> Rows:
    """Return inputs with the targets of other rows."""
    return x, y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]


def wrong_targets(share: float, seed: int) -> Change:
    """Return what gives a share of the rows another class."""

    def change(x: Tensor, y: Tensor) -> Rows:
        draws, classes, y = np.random.default_rng(seed), int(y.max()) + 1, y.clone()
        hit = torch.from_numpy(draws.permutation(len(y))[: int(share * len(y))])
        y[hit] = (y[hit] + torch.from_numpy(draws.integers(1, classes, len(hit)))) % classes
        return x, y

    return change


def rarer(share: float, number: int = 1) -> Change:
    """Return what leaves a share of one class."""

    def change(x: Tensor, y: Tensor) -> Rows:
        others, rare = (y != number).nonzero()[:, 0], (y == number).nonzero()[:, 0]
        kept = torch.cat([others, rare[: max(1, int(share * len(rare)))]])
        return x[kept], y[kept]

    return change


def first_rows(count: int) -> Change:
    return lambda x, y: (x[:count], y[:count])


def with_noise_columns(columns: int, seed: int) -> Change:
    """Return what adds columns that tell nothing."""
    return lambda x, y: (torch.cat([x, torch.randn(len(x), columns, generator=torch.Generator().manual_seed(seed))], 1), y)


def with_validation_rows(parts: Parts) -> Parts:
    """Return parts whose training rows hold those of validation too."""
    joined = [torch.cat(both) for both in zip(parts.train, parts.validation, strict=True)]
    return Parts((joined[0], joined[1]), parts.validation)


# --- other ways to give them ----------------------------------------------------------------------


class Ordered(IterableDataset[Rows]):
    """Gives its rows in their order, as a stream does; nothing shuffles them."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[Rows]:
        return iter(zip(self.x, self.y, strict=True))


class Slow(Dataset[Rows]):
    """Takes its time for each row, as a slow disk does."""

    def __init__(self, x: Tensor, y: Tensor, sleep: Callable[[], None]) -> None:
        self.x, self.y, self.sleep = x, y, sleep

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, place: int) -> Rows:
        self.sleep()
        return self.x[place], self.y[place]
