"""Trials by several metrics, beside what the definitions give one by one."""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from mltrainer.configs.project import excess, meets
from mltrainer.records.pareto import feasible, front, taken

WANTED = {"error": "min"}


@dataclass(frozen=True)
class Row:
    nr: int
    value: Any
    objectives: dict[str, Any] = field(default_factory=dict)
    state: str = "finished"


def rows(*points: tuple[Any, Any]) -> list[Row]:
    return [Row(nr, value, {"error": error}) for nr, (value, error) in enumerate(points, 1)]


@pytest.mark.parametrize("criterion", [">= 0.5", "> 0.5", "<= 0.5", "< 0.5"])
@pytest.mark.parametrize("value", [0.4, 0.5, 0.6, float("inf"), float("nan")])
def test_a_trial_that_misses_a_constraint_misses_it_by_more_than_nothing(criterion, value):
    within = eval(f"value {criterion}")
    assert meets(value, criterion) == within
    assert (excess(value, criterion) <= 0) == within
    assert numbers(feasible(rows((1.0, value)), {"error": criterion})) == [1] * within


def test_a_trial_without_a_metric_meets_no_constraint_on_it():
    trials = [Row(1, 0.9, {"error": 0.1, "speed": 5}), Row(2, 0.9, {"error": 0.1}), Row(3, 0.9, {"error": "nan", "speed": 5})]
    assert numbers(feasible(trials, {"error": "<= 0.2", "speed": ">= 1"})) == [1]
    assert numbers(feasible(trials, {})) == [1, 2, 3]


def numbers(found: list[Row]) -> list[int]:
    return [row.nr for row in found]


@pytest.mark.parametrize("seed", range(20))
def test_the_pareto_set_is_what_no_other_trial_dominates(seed):
    draw = random.Random(seed)
    trials = [Row(nr, draw.randrange(6), {"error": draw.randrange(6), "speed": draw.randrange(4)}) for nr in range(1, 25)]

    def dominates(one: Row, other: Row) -> bool:
        gaps = [one.value - other.value, other.objectives["error"] - one.objectives["error"]]
        gaps.append(one.objectives["speed"] - other.objectives["speed"])
        return min(gaps) >= 0 < max(gaps)

    beaten = {other.nr for one, other in itertools.permutations(trials, 2) if dominates(one, other)}
    found = front(trials, "max", {"error": "min", "speed": "max"})
    assert numbers(found) == [row.nr for row in trials if row.nr not in beaten]


def test_the_one_closest_to_the_best_of_each_is_taken():
    # Scaled over the set: (1, 1), (0.1, 0.3), (0.5, 0) away from the ideal point, and one that is dominated.
    trials = rows((0.90, 0.10), (0.89, 0.04), (0.80, 0.01), (0.79, 0.05))
    assert numbers(front(trials, "max", WANTED)) == [1, 2, 3]
    best = taken(trials, "max", WANTED)
    assert best.nr == 2


def test_one_far_off_in_a_dominated_trial_changes_no_scale():
    trials = rows((0.90, 0.10), (0.89, 0.04), (0.80, 0.01))
    best, again = (taken(some, "max", WANTED) for some in (trials, [*trials, Row(4, 0.5, {"error": 1e9})]))
    assert best == again


def test_of_equally_close_ones_the_better_by_the_first_metric_is_taken_then_the_earlier():
    both, same = taken(rows((0.8, 0.1), (0.9, 0.2)), "max", WANTED), taken(rows((0.9, 0.1), (0.9, 0.1)), "max", WANTED)
    assert (both and both.nr, same and same.nr) == (2, 1)


def test_what_did_not_finish_or_lacks_a_metric_is_not_in_it():
    trials = [Row(1, 0.9, {}), Row(2, 0.9, {"error": "nan"}), Row(3, 0.9, {"error": 0.0}, "pruned"), Row(4, 0.1, {"error": 0.5})]
    assert numbers(front(trials, "max", WANTED)) == [4]
    assert taken(trials[:3], "max", WANTED) is None


def test_the_first_metric_has_its_direction_too():
    assert numbers(front(rows((0.1, 0.1), (0.9, 0.2)), "min", WANTED)) == [1]
