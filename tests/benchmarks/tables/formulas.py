"""Tables that ship with scikit-learn, or come from published generating formulas; each as columns of cells."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets

TARGET = "target"


@dataclass(frozen=True)
class Made:
    """A table.

    Attributes:
        x: [rows, columns], NaN for a missing cell.
        y: [rows], class numbers or values.
        categories: Columns whose numbers are names of categories.
    """

    x: np.ndarray
    y: np.ndarray
    categories: tuple[int, ...] = ()


@dataclass(frozen=True)
class Formula:
    """Where a table comes from.

    Attributes:
        title: What the docs call it.
        is_classification: Whether the target is a class.
        make: The table of a seed; those that ship are the same for each.
    """

    title: str
    is_classification: bool
    make: Callable[[int], Made]

    def write(self, seed: int, path: Path) -> None:
        """Write the table as a CSV file; categories and classes as words, so that nobody takes them for numbers."""
        table = self.make(seed)
        names = [f"{'kind' if place in table.categories else 'x'}_{place}" for place in range(table.x.shape[1])]
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*names, TARGET])
            for row, value in zip(table.x, table.y, strict=True):
                cells = [_cell(cell, place in table.categories) for place, cell in enumerate(row)]
                out.writerow([*cells, f"class {int(value)}" if self.is_classification else repr(float(value))])


def agrawal(seed: int, rows: int = 2000, missing: float = 0.05) -> Made:
    """Return function 7 of Agrawal, Imielinski and Swami (1993): a group by disposable income, of nine attributes.

    A twentieth of the labels is flipped, and as many cells are missing.
    """
    draws = np.random.default_rng(seed)
    salary, age = draws.uniform(20_000, 150_000, rows), draws.integers(20, 81, rows)
    commission = np.where(salary >= 75_000, 0, draws.uniform(10_000, 75_000, rows))
    level, car, zipcode = (draws.integers(0, count, rows) for count in (5, 20, 9))
    value = (9 - zipcode) * 100_000 * draws.uniform(0.5, 1.5, rows)
    years, loan = draws.integers(1, 31, rows), draws.uniform(0, 500_000, rows)
    y = 2 * (salary + commission) / 3 - loan / 5 - 20_000 > 0
    x = np.stack([salary, commission, age, level, car, zipcode, value, years, loan], axis=1).astype(np.float64)
    x[draws.random(x.shape) < missing] = np.nan
    return Made(x, (y ^ (draws.random(rows) < 0.05)).astype(np.int64), (3, 4, 5))


def _shipped(name: str) -> Callable[[int], Made]:
    return lambda _seed: Made(*getattr(datasets, f"load_{name}")(return_X_y=True))


def _drawn(name: str, *arguments: int, **options: float) -> Callable[[int], Made]:
    return lambda seed: Made(*getattr(datasets, f"make_{name}")(*arguments, random_state=seed, **options))


FORMULAS: dict[str, Formula] = {
    "iris": Formula("iris, 150 rows", True, _shipped("iris")),
    "wine": Formula("wine, 178 rows", True, _shipped("wine")),
    "breast_cancer": Formula("breast cancer, 569 rows", True, _shipped("breast_cancer")),
    "digits": Formula("digits as a table, 1797 rows", True, _shipped("digits")),
    "diabetes": Formula("diabetes, 442 rows", False, _shipped("diabetes")),
    "friedman1": Formula("Friedman 1, noise 1, 2000 rows", False, _drawn("friedman1", 2000, noise=1)),
    "friedman2": Formula("Friedman 2, noise 100, 2000 rows", False, _drawn("friedman2", 2000, noise=100)),
    "friedman3": Formula("Friedman 3, noise 0.1, 2000 rows", False, _drawn("friedman3", 2000, noise=0.1)),
    "sparse": Formula("sparse uncorrelated, 1000 rows", False, _drawn("sparse_uncorrelated", 1000)),
    "hastie": Formula("Hastie 10.2, 2000 rows", True, _drawn("hastie_10_2", 2000)),
    "moons": Formula("two moons, noise 0.3, 1000 rows", True, _drawn("moons", 1000, noise=0.3)),
    "quantiles": Formula(
        "Gaussian quantiles, 4 classes, 2000 rows",
        True,
        _drawn("gaussian_quantiles", n_samples=2000, n_features=6, n_classes=4),
    ),
    "classification": Formula(
        "clusters on a hypercube, 3 classes, 2000 rows",
        True,
        _drawn("classification", 2000, 20, n_informative=8, n_redundant=4, n_classes=3, flip_y=0.05),
    ),
    "agrawal": Formula("Agrawal 7, categories and gaps, 2000 rows", True, agrawal),
}


def _cell(value: float, is_category: bool) -> str:
    if np.isnan(value):
        return ""
    return f"v{int(value)}" if is_category else repr(float(value))
