"""Configs trained on the same fresh seeds, so that chance affects all of them alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mltrainer.configs.project import Metric, TrainingConfig
from mltrainer.reproducibility import seeds
from mltrainer.search.runs import Runs
from mltrainer.search.space import reseeded
from mltrainer.search.study import outcome
from mltrainer.search.trial import Outcome, Trained


@dataclass(frozen=True)
class Seeded:
    """A config's run on one of the seeds, and its outcome."""

    run: Trained
    outcome: Outcome


def fresh_seeds(seed: int, purpose: str, count: int) -> list[int]:
    """Return the first `count` seeds of a purpose: each a function of the config's seed, the purpose and its number alone."""
    # A config takes no larger seed.
    return [seeds.key(seed, purpose, number) % 2**32 for number in range(count)]


def sown(config: TrainingConfig, fresh: Sequence[int]) -> list[TrainingConfig]:
    """Return a config under each seed, on one of its folds in turn; under its own seed it is the unchanged config."""
    seeded = (config if seed == config.seed else reseeded(config, seed) for seed in fresh)
    return [one.on_fold(config.folds[nr % len(config.folds)]) for nr, one in enumerate(seeded)]


def on_seeds(runs: Runs, sides: Mapping[str, TrainingConfig], fresh: Sequence[int], metric: Metric) -> dict[str, list[Seeded]]:
    """Train each config on each seed; runs that were trained before are used again.

    Args:
        runs: The study's runs, which train them.
        sides: The configs by name.
        fresh: The seeds.
        metric: The metric to compare.

    Returns:
        The run and its outcome for each seed in order, by the config's name.
    """
    each = {name: sown(config, fresh) for name, config in sides.items()}
    asked = [(name, nr) for nr in range(len(fresh)) for name in sides]  # so that a slow phase of the machine slows all of them
    ended: list[int] = []

    def tell(nr: int, run: Trained) -> None:
        ended.append(nr)
        name, place = asked[nr]
        so_far = f"{len(ended)} of {len(asked)}"
        runs.events.send("note", text=f"  {name}, seed {fresh[place]}: {outcome(run, metric).told(metric.name)}; {so_far}")

    found = [Seeded(run, outcome(run, metric)) for run in runs.all([each[name][place] for name, place in asked], tell)]
    return {name: found[nr :: len(sides)] for nr, name in enumerate(sides)}
