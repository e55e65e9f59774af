"""The space of a search: what each form of a dimension can be, and what a trial's values make of a config."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from mltrainer.configs.loading import assign, flatten, validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds

Values = dict[str, Any]
Dimension = Mapping[str, Any]
GRID_POINTS = 5  # of a range in a grid, both ends included


def form_of(dimension: Dimension) -> str:
    """Return the one form that a dimension is given in."""
    return next(name for name, value in dimension.items() if name != "when" and value is not None)


def at(dimension: Dimension, share: float) -> Any:
    """Return the value at a share, from 0 up to 1, of a dimension's range or list.

    Args:
        dimension: `choice`, `uniform`, `log_uniform`, `integer` or `log_integer`.
        share: Where in it.
    """
    form = form_of(dimension)
    given = dimension[form]
    if form == "choice":
        return given[min(int(share * len(given)), len(given) - 1)]
    low, high = given
    if form == "uniform":
        return float(low + (high - low) * share)
    if form == "log_uniform":
        return _within(low, math.exp(math.log(low) + (math.log(high) - math.log(low)) * share), high)
    if form == "integer":
        return min(int(low + math.floor((high - low + 1) * share)), high)
    return min(max(round(math.exp(math.log(low - 0.5) + (math.log(high + 0.5) - math.log(low - 0.5)) * share)), low), high)


def _within(low: float, value: float, high: float) -> float:
    return float(min(max(value, low), high))  # the exponential may round beyond an end


def draw(dimension: Dimension, seed: int, trial: int, key: str) -> Any:
    """Return one value of a dimension for a trial; its address is (seed, "tuner", key, trial).

    Args:
        dimension: The values.
        seed: The study's seed.
        trial: The trial's number, from 1.
        key: The config key.
    """
    generator = seeds.generator(seed, f"tuner/{key}", trial)
    form = form_of(dimension)
    if form == "choice":
        return dimension[form][int(generator.integers(len(dimension[form])))]
    if form == "uniform":
        return float(generator.uniform(*dimension[form]))
    if form == "log_uniform":
        low, high = dimension[form]
        return _within(low, math.exp(generator.uniform(math.log(low), math.log(high))), high)
    return at(dimension, float(generator.random()))


def trial_values(space: Mapping[str, Dimension], seed: int, trial: int) -> Values:
    """Return a trial's random values by dotted key: a function of seed and number alone, whatever ran before."""
    return {key: draw(dimension, seed, trial, key) for key, dimension in sorted(space.items())}


def in_order(space: Mapping[str, Dimension]) -> list[str]:
    """Return a space's keys, sorted, each behind those that decide whether it is there."""
    found: list[str] = []
    left = sorted(space)
    while left:
        ready = [key for key in left if not set(space[key].get("when") or ()) & set(left)] or left
        found += ready
        left = [key for key in left if key not in ready]
    return found


def is_there(dimension: Dimension, values: Mapping[str, Any]) -> bool:
    """Return whether other values let a dimension be searched."""
    wanted = dimension.get("when") or {}
    return all(key in values and values[key] in allowed for key, allowed in wanted.items())


def active(space: Mapping[str, Dimension], values: Values, config: Mapping[str, Any]) -> Values:
    """Return the values of the dimensions that are there; what is not searched is as the config has it.

    Args:
        space: Dotted key to dimension.
        values: A value for each.
        config: A full training config.
    """
    fixed, found = flatten(dict(config)), Values()
    for key in in_order(space):
        if is_there(space[key], {**fixed, **found}):
            found[key] = values[key]
    return dict(sorted(found.items()))


def grid(space: Mapping[str, Dimension], config: Mapping[str, Any]) -> Iterator[Values]:
    """Yield every combination of the choices, and of evenly spaced points of the ranges; each once, the last key fastest."""
    keys = sorted(space)
    seen = set()
    for combination in itertools.product(*(_points(space[key]) for key in keys)):
        values = active(space, dict(zip(keys, combination, strict=True)), config)
        mark = repr(values)
        if mark not in seen:
            seen.add(mark)
            yield values


def _points(dimension: Dimension) -> list[Any]:
    form = form_of(dimension)
    if form == "choice":
        return list(dimension[form])
    return list(dict.fromkeys(at(dimension, nr / (GRID_POINTS - 1)) for nr in range(GRID_POINTS)))


def trial_config(config: Values, values: Values, where: str = "the candidate") -> TrainingConfig:
    """Return a config with some dotted keys replaced.

    Raises:
        InputError: They do not fit together; `where` says whose they are.
    """
    return validate_values(TrainingConfig, assign(config, values.items()), f"configs/tuning_template.yaml, {where}")


def reseeded(config: TrainingConfig, seed: int) -> TrainingConfig:
    """Return a config under a fresh seed; samples and splits stay those of the study, so that only luck changes."""
    if config.task.script is not None:  # what its seed decides, only the program knows
        return config.model_copy(update={"seed": seed})
    return config.model_copy(update={"seed": seed, "split": config.split.model_copy(update={"seed": config.data_seed})})
