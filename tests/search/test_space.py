"""Dimensions, conditions and grids of a search's space."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig, config_digest
from mltrainer.configs.templates import TuningTemplate, applicable_space
from mltrainer.errors import InputError
from mltrainer.search.comparing import sides_of
from mltrainer.search.space import active, at, draw, grid, in_order, trial_config
from tests.projects import PROJECT

CONFIG = TrainingConfig.model_validate({**PROJECT, "epochs": 2}).model_dump()
OPTIMIZERS: dict[str, Any] = {
    "optimizer.name": {"choice": ["adamw", "sgd"]},
    "optimizer.momentum": {"uniform": [0.5, 0.99], "when": {"optimizer.name": ["sgd"]}},
    "optimizer.lr": {"log_uniform": [1e-3, 1e-1]},
}


@pytest.mark.parametrize(
    ("dimension", "ends"),
    [
        ({"uniform": [0.0, 2.0]}, (0.0, 2.0)),
        ({"log_uniform": [1e-3, 1e-1]}, (1e-3, 1e-1)),
        ({"integer": [2, 5]}, (2, 5)),
        ({"log_integer": [1, 64]}, (1, 64)),
        ({"choice": ["a", None, [1]]}, ("a", [1])),
    ],
)
def test_a_share_of_a_dimension_reaches_from_its_low_to_its_high_end(dimension, ends):
    assert at(dimension, 0.0) == pytest.approx(ends[0]) if isinstance(ends[0], float) else at(dimension, 0.0) == ends[0]
    assert at(dimension, 1.0) == pytest.approx(ends[1]) if isinstance(ends[1], float) else at(dimension, 1.0) == ends[1]


def test_whole_numbers_are_equally_likely_and_in_the_exponent_where_asked():
    counts = Counter(draw({"integer": [1, 4]}, 0, trial, "k") for trial in range(4000))
    assert set(counts) == {1, 2, 3, 4}
    assert min(counts.values()) > 900
    logs = [draw({"log_integer": [1, 64]}, 0, trial, "k") for trial in range(2000)]
    assert 0.4 < sum(value <= 8 for value in logs) / 2000 < 0.6


def test_a_dimension_is_there_only_with_the_values_that_it_names():
    assert in_order(OPTIMIZERS)[-1] == "optimizer.momentum"
    values = {"optimizer.name": "adamw", "optimizer.momentum": 0.9, "optimizer.lr": 0.01}
    assert active(OPTIMIZERS, values, CONFIG) == {"optimizer.lr": 0.01, "optimizer.name": "adamw"}
    with_sgd = active(OPTIMIZERS, {**values, "optimizer.name": "sgd"}, CONFIG)
    assert trial_config(CONFIG, with_sgd).optimizer.momentum == 0.9  # type: ignore[union-attr]


def test_a_condition_on_what_is_not_searched_asks_the_config():
    space = {"optimizer.lr": {"uniform": [0.1, 0.2], "when": {"optimizer.name": ["adamw"]}}}
    assert active(space, {"optimizer.lr": 0.1}, CONFIG) == {"optimizer.lr": 0.1}
    assert (
        active({"optimizer.lr": {**space["optimizer.lr"], "when": {"optimizer.name": ["sgd"]}}}, {"optimizer.lr": 0.1}, CONFIG)
        == {}
    )


def test_a_key_that_only_another_choice_has_stays_in_the_space():
    assert set(applicable_space(OPTIMIZERS, CONFIG)) == set(OPTIMIZERS)
    alone = {"optimizer.momentum": {"uniform": [0.5, 0.9]}}
    assert applicable_space(alone, CONFIG) == {}


def test_the_settings_of_a_strategy_are_searched_by_its_place():
    config = {**CONFIG, "strategies": [{"name": "curriculum", "epochs": 3}]}
    space = {"strategies.0.begin": {"uniform": [0.2, 0.8]}, "strategies.1.weight": {"uniform": [0.1, 0.9]}}
    assert TuningTemplate.model_validate({"strategy": "random", "trials": 1, "space": space}).space.keys() == space.keys()
    validated = TrainingConfig.model_validate(config).model_dump()
    assert [*applicable_space(space, validated)] == ["strategies.0.begin"]
    changed = trial_config(validated, {"strategies.0.begin": 0.4})
    assert changed.model_dump()["strategies"][0]["begin"] == 0.4


def test_a_setting_that_no_strategy_has_is_not_searched():
    space = {"strategies.0.temprature": {"uniform": [1.0, 9.0]}}
    with pytest.raises(ValueError, match=r"did you mean 'strategies.0.temperature'"):
        TuningTemplate.model_validate({"strategy": "random", "trials": 1, "space": space})


def test_a_grid_has_each_combination_once_also_where_a_dimension_is_not_there():
    space = {**OPTIMIZERS, "optimizer.lr": {"choice": [0.1, 0.2]}}
    found = list(grid(space, CONFIG))
    assert len(found) == 2 + 2 * 5  # adamw without a momentum, sgd with five
    assert len({repr(values) for values in found}) == len(found)


@pytest.mark.parametrize(
    ("dimension", "fault"),
    [
        ({"integer": [5, 2]}, "the low end 5 must be below the high end 2"),
        ({"log_integer": [0, 8]}, "log_integer needs a low end above 0, found 0"),
        ({"integer": [1, 2], "uniform": [0, 1]}, "exactly one of choice, uniform, log_uniform, integer, log_integer"),
    ],
)
def test_a_dimension_that_cannot_be_is_refused(dimension, fault):
    with pytest.raises(ValueError, match=fault):
        TuningTemplate.model_validate({"strategy": "tpe", "trials": 3, "space": {"batch_size": dimension}})


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({}, "strategy: nsga2 is for several metrics: name further ones in objectives, or take tpe"),
        ({"objectives": {"loss": "min"}, "pruning": {}}, "strategy: nsga2 needs all metrics of each trial: pruning: null"),
        ({"objectives": {"loss": "min"}, "terminator": {"patience": 9}}, "terminator: it looks at one metric"),
        ({"objectives": {"loss": "min"}, "constraints": {"loss": 3}}, 'loss: say on which side, such as loss: ">= 3"'),
    ],
)
def test_a_search_by_several_metrics_that_cannot_be_is_refused(asked, fault):
    with pytest.raises(ValueError, match=fault):
        TuningTemplate.model_validate({"strategy": "nsga2", "trials": 3, "space": {"batch_size": {"choice": [1]}}, **asked})


SCHEDULES = {  # each with what it asks for
    "constant": {},
    "linear": {},
    "cosine": {},
    "cosine_restarts": {},
    "one_cycle": {},
    "polynomial": {},
    "exponential": {},
    "step": {},
    "cyclical": {},
    "plateau": {},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_winner_of_any_schedule_is_named_alike_when_it_is_chosen_and_when_its_job_is_read(name):
    values = {"schedule.name": name}
    try:
        chosen = trial_config(CONFIG, values)
    except InputError:  # what the config holds for another one does not go with it, so that no trial has it
        chosen = trial_config({**CONFIG, "schedule": {"name": name, **SCHEDULES[name]}}, values)
    read = TrainingConfig.model_validate(json.loads(json.dumps(chosen.model_dump())))
    assert config_digest(read) == config_digest(chosen)
    again = sides_of(chosen, values)["candidate"]
    assert config_digest(TrainingConfig.model_validate(again.model_dump())) == config_digest(again) == config_digest(read)
