"""The space of a search: values of each form of a dimension, their combinations, random draws, and configs made of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mltrainer.configs.loading import assign, each_entry, validate_values
from mltrainer.configs.project import TrainingConfig

Values = dict[str, Any]
Dimension = Mapping[str, Any]
GRID_POINTS = 5  # points of a range in a grid, both ends included
SPREAD = 16  # points of a range over which a mean is taken


def form_of(dimension: Dimension) -> str:
    """Return the name of a dimension's form."""
    return next(name for name, value in dimension.items() if name != "when" and value is not None)


def at(dimension: Dimension, share: float) -> Any:
    """Return the value at a share, from 0 up to 1, of a dimension's range or list.

    Args:
        dimension: The dimension, of the form `choice`, `uniform`, `log_uniform`, `integer` or `log_integer`.
        share: The share, from 0 at its first value up to 1.
    """
    form = form_of(dimension)
    given = dimension[form]
    if form == "choice":
        return given[min(int(share * len(given)), len(given) - 1)]
    low, high = given
    if form == "uniform":
        return float(low + (high - low) * share)
    if form == "log_uniform":
        return within(low, math.exp(math.log(low) + (math.log(high) - math.log(low)) * share), high)
    if form == "integer":
        return min(int(low + math.floor((high - low + 1) * share)), high)
    # From half a number below to half above, so that both ends get a whole number's share.
    return min(max(round(math.exp(math.log(low - 0.5) + (math.log(high + 0.5) - math.log(low - 0.5)) * share)), low), high)


def within(low: float, value: float, high: float) -> float:
    """Return the number in a range that is nearest to a value."""
    return float(min(max(value, low), high))  # the exponential may round beyond an end


def in_order(space: Mapping[str, Dimension]) -> list[str]:
    """Return a space's keys, sorted, each after the keys that decide whether it is there."""
    found: list[str] = []
    left = sorted(space)
    while left:
        # Keys that wait for one another are taken together: else this would not end.
        ready = [key for key in left if not set(space[key].get("when") or ()) & set(left)] or left
        found += ready
        left = [key for key in left if key not in ready]
    return found


def is_there(dimension: Dimension, values: Mapping[str, Any]) -> bool:
    """Return True where the other values meet a dimension's `when`, so that it is searched."""
    wanted = dimension.get("when") or {}
    return all(key in values and values[key] in allowed for key, allowed in wanted.items())


def active(space: Mapping[str, Dimension], values: Values, config: Mapping[str, Any]) -> Values:
    """Return the values of the dimensions that are there; the config gives the values of keys that are not searched.

    Args:
        space: The dimensions, by dotted key.
        values: A value for each dimension.
        config: A full training config.
    """
    fixed, found = each_entry(config), Values()
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
        # Lists have no hash; and in its repr, 1 is neither 1.0 nor true.
        mark = repr(values)
        if mark not in seen:
            seen.add(mark)
            yield values


def _points(dimension: Dimension) -> list[Any]:
    form = form_of(dimension)
    if form == "choice":
        return list(dimension[form])
    return list(dict.fromkeys(at(dimension, nr / (GRID_POINTS - 1)) for nr in range(GRID_POINTS)))


def mean_of(space: Mapping[str, Dimension], key: str, held: float, cost: Callable[[float], float]) -> float:
    """Return the mean cost over the values that a key may take; the cost of its one value where it is not searched."""
    if key not in space:
        return cost(held)
    return math.fsum(map(cost, _spread(space[key]))) / len(_spread(space[key]))


def _spread(dimension: Dimension) -> list[Any]:
    """Return the values of a choice, or evenly spaced values of a range."""
    form = form_of(dimension)
    return list(dimension[form]) if form == "choice" else [at(dimension, (nr + 0.5) / SPREAD) for nr in range(SPREAD)]


def points(space: Mapping[str, Dimension], config: Mapping[str, Any], strategy: str, most: int) -> int | None:
    """Return the number of different trials in a space, at most `most` + 1; None with a range that a grid does not list in full.

    Args:
        space: The dimensions, by dotted key.
        config: A full training config.
        strategy: The strategy's name; for `grid` the points of a range are counted.
        most: The largest number to count to.
    """
    if strategy != "grid" and not all(map(_is_filled, space.values())):
        return None
    return sum(1 for _ in itertools.islice(grid(space, config), most + 1))


def _is_filled(dimension: Dimension) -> bool:
    """Return True where a grid goes through every value of a dimension."""
    form = form_of(dimension)
    whole = form in ("integer", "log_integer") and len(_points(dimension)) == dimension[form][1] - dimension[form][0] + 1
    return form == "choice" or whole


# --- random values, and configs -------------------------------------------------------------------


def draw(dimension: Dimension, seed: int, trial: int, key: str) -> Any:
    """Return a random value of a dimension for a trial; the draw's address is (seed, "tuner", key, trial).

    Args:
        dimension: The dimension: its form, with choices or a range.
        seed: The study's seed.
        trial: The trial's number, from 1.
        key: The config key.
    """
    from mltrainer.reproducibility import (
        seeds,  # here and below: it brings torch, which optimization's own process has no use for
    )

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


def fresh_seeds(seed: int, purpose: str, count: int) -> list[int]:
    """Return the first `count` seeds of a purpose: each a function of the config's seed, the purpose and its number alone."""
    from mltrainer.reproducibility import seeds

    # A config takes no larger seed.
    return [seeds.key(seed, purpose, number) % 2**32 for number in range(count)]


def sown(config: TrainingConfig, fresh: Sequence[int]) -> list[TrainingConfig]:
    """Return a config under each seed, on one of its folds in turn; under its own seed it is the unchanged config."""
    seeded = (config if seed == config.seed else reseeded(config, seed) for seed in fresh)
    return [one.on_fold(config.folds[nr % len(config.folds)]) for nr, one in enumerate(seeded)]
