"""Strategies that draw trials by several metrics or within constraints, on a function whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mltrainer.search.suggest import strategy
from mltrainer.search.trial import Trial

LAG = 4
NARROW = {"x1": ">= 0.7"}


def zdt1(values: dict[str, float]) -> tuple[float, float]:
    """Return the two values to minimize of Zitzler, Deb and Thiele's first problem (2000, Evolutionary Computation 8:173-195)."""
    first, *others = values.values()
    g = 1 + 9 * sum(others) / len(others)
    return first, g * (1 - math.sqrt(first / g))


def searched(name: str, seed: int, trials: int, keys: int, constraints: dict[str, str], bad: Any = None) -> list[Trial]:
    """Return the trials of a search; `bad` takes the place of the second metric of each fifth one."""
    space = {f"x{nr}": {"uniform": [0.0, 1.0]} for nr in range(keys)}
    config = {"seed": seed, "metric": {"name": "first", "mode": "min"}}
    drawn, ended = strategy(name, space, config, trials, {"second": "min"}, constraints), list[Trial]()
    for nr in range(1, trials + 1):
        if drawn.learns and nr > LAG:
            drawn.learn(ended[nr - LAG - 1])
        values = drawn.values(nr)
        first, second = zdt1(values)
        further = {"second": second if bad is None or nr % 5 else bad, "x1": values["x1"]}
        about: dict[str, Any] = {"nr": nr, "values": values, "seed": 1, "run": "r", "steps": 1, "wall_s": 1.0}
        ended.append(Trial(**about, state="finished", value=first, objectives=further))
    return ended


def covered(trials: list[Trial]) -> int:
    """Return the number of places of a grid that are worse in both metrics than some trial."""
    points = [zdt1(trial.values) for trial in trials]
    places = [(a / 40, 7 * b / 40) for a in range(40) for b in range(40)]
    return sum(any(first < a and second < b for first, second in points) for a, b in places)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nsga2", "nsga3"])
def test_several_metrics_are_searched_further_than_by_points_that_fill_the_space(name):
    gains = [covered(searched(name, seed, 100, 6, {})) - covered(searched("quasi_random", seed, 100, 6, {})) for seed in range(3)]
    assert sum(gains) > 0


@pytest.mark.parametrize("name", ["tpe", "nsga2", "nsga3"])
def test_what_learns_draws_values_that_meet_the_constraints(name):
    met, free = (sum(one.values["x1"] >= 0.7 for one in searched(name, 0, 50, 4, asked)) for asked in (NARROW, {}))
    assert met > free + 10


@pytest.mark.slow
def test_a_gaussian_process_meets_the_constraints():
    met, free = (sum(one.values["x1"] >= 0.7 for one in searched("gp", 0, 18, 3, asked)[10:]) for asked in (NARROW, {}))
    assert met > free


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
@pytest.mark.parametrize("bad", ["nan", math.inf])
def test_a_metric_that_could_not_be_computed_is_learned_as_a_failure(name, bad):
    found = searched(name, 0, 30, 3, {"second": "<= 5"}, bad)
    assert [one.values for one in found] == [one.values for one in searched(name, 0, 30, 3, {"second": "<= 5"}, bad)]
