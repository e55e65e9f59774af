"""Features made of the targets around them are told in whatever form, and such as are made of earlier ones are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from mltrainer.tasks.leak_rules import made_of_neighbours

ROWS = 600
draws = np.random.default_rng(0)
NOISE = draws.standard_normal(ROWS)
TARGETS = {
    "noise": NOISE,
    "a walk": np.cumsum(NOISE),
    "a season": np.sin(np.arange(ROWS)) + 0.3 * NOISE,
    "counts": draws.poisson(2, ROWS).astype(float),
}
Make = Callable[["pd.Series[float]"], "pd.Series[float]"]
LEAKS: dict[str, tuple[Make, str]] = {
    "a centred mean": (lambda y: y.rolling(7, center=True).mean(), "the mean of the target over 7 rows in time, later ones"),
    "with shorter ends": (lambda y: y.rolling(5, center=True, min_periods=1).mean(), "over 5 rows in time, later ones"),
    "a wide one": (lambda y: y.rolling(31, center=True).mean(), "over 31 rows in time, later ones"),
    "a sum of what comes": (lambda y: y.shift(-3).rolling(3).sum(), "over 3 rows in time, later ones"),
    "a mean with its own": (lambda y: y.rolling(4).mean(), "over 4 rows in time, its own among them"),
    "the next": (lambda y: y.shift(-1), "is the target of the next row in time"),
    "one later": (lambda y: y.shift(-5), "is the target 5 rows later in time"),
}
HONEST: dict[str, Make] = {
    "the last": lambda y: y.shift(1),
    "a mean of the past": lambda y: y.shift(1).rolling(7).mean(),
    "noise": lambda y: pd.Series(np.random.default_rng(1).standard_normal(ROWS)),
    "a noisy copy": lambda y: y + pd.Series(np.random.default_rng(1).standard_normal(ROWS)),
    "a clock": lambda y: pd.Series(np.arange(ROWS) % 24.0),
    "a constant": lambda y: pd.Series(np.ones(ROWS)),
}


def told(makes: dict[str, Make], target: np.ndarray, places: np.ndarray) -> dict[str, str]:
    columns = [make(pd.Series(target)).to_numpy()[places] for make in makes.values()]
    found = made_of_neighbours(columns, target[places], places)
    return {name: found[place] for place, name in enumerate(makes) if place in found}


@pytest.mark.parametrize("share", [1.0, 0.7], ids=["all rows", "rows of a random split"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_means_over_the_rows_around_are_told_and_those_of_the_past_are_not(target, share):
    places = np.sort(np.random.default_rng(2).permutation(ROWS)[: int(share * ROWS)])
    found = told({name: make for name, (make, _) in LEAKS.items()}, target, places)
    assert {name: what in found.get(name, "") for name, (_, what) in LEAKS.items()} == dict.fromkeys(LEAKS, True)
    assert told(HONEST, target, places) == {}


def test_a_target_that_repeats_itself_is_told_by_its_past_and_few_rows_tell_nothing():
    times = np.arange(ROWS)
    assert made_of_neighbours([np.cos(times / 3)], np.sin(times / 3), times) == {}
    assert made_of_neighbours([np.arange(9.0)], np.arange(9.0), np.arange(9)) == {}


def test_one_series_after_another_is_looked_at_as_one():
    parts = [pd.Series(NOISE[start : start + 100]) for start in range(0, ROWS, 100)]
    feature = pd.concat([part.rolling(5, center=True, min_periods=1).mean() for part in parts]).to_numpy()
    assert "over 5 rows" in made_of_neighbours([feature], NOISE, np.arange(ROWS))[0]
