"""The space of a search: random values of a trial, and the configs made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mltrainer.configs.loading import assign, validate_values
from mltrainer.configs.project import TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.search.points import Dimension as Dimension
from mltrainer.search.points import Values as Values
from mltrainer.search.points import active as active
from mltrainer.search.points import at as at
from mltrainer.search.points import form_of as form_of
from mltrainer.search.points import grid as grid
from mltrainer.search.points import in_order as in_order
from mltrainer.search.points import is_there as is_there
from mltrainer.search.points import within


def draw(dimension: Dimension, seed: int, trial: int, key: str) -> Any:
    """Return a random value of a dimension for a trial; the draw's address is (seed, "tuner", key, trial).

    Args:
        dimension: The dimension: its form, with choices or a range.
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
        return within(low, math.exp(generator.uniform(math.log(low), math.log(high))), high)
    return at(dimension, float(generator.random()))


def trial_values(space: Mapping[str, Dimension], seed: int, trial: int) -> Values:
    """Return a trial's random values by dotted key: a function of seed and number alone."""
    return {key: draw(dimension, seed, trial, key) for key, dimension in sorted(space.items())}


def trial_config(config: Values, values: Values, where: str = "the candidate") -> TrainingConfig:
    """Return a config with some dotted keys replaced.

    Raises:
        InputError: The values do not fit together; `where` names their owner.
    """
    return validate_values(TrainingConfig, assign(config, values.items()), f"configs/tuning_template.yaml, {where}")


def reseeded(config: TrainingConfig, seed: int) -> TrainingConfig:
    """Return a config under a fresh seed; samples and splits stay those of the study, so that only chance changes."""
    if config.task.is_opaque:  # only its trainer knows the effects of its seed
        return config.model_copy(update={"seed": seed})
    return config.model_copy(update={"seed": seed, "split": config.split.model_copy(update={"seed": config.data_seed})})
