"""The best of a search's trials: by one metric, or out of the Pareto set (no other trial is as good in all and better in one)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from mltrainer.configs.project import meets

Point = tuple[float, ...]
NONE: Mapping[str, str] = MappingProxyType({})
RULE = (
    "of the Pareto set, the one closest to the best value of each, the metrics scaled to their "
    "range over these trials (compromise programming: Yu, 1973; Zeleny, 1973)"
)


class Measured(Protocol):
    """A trial in any form: a record's, or a study's."""

    @property
    def nr(self) -> int:
        """The trial's number."""

    @property
    def state(self) -> str:
        """The trial's state, such as `finished`."""

    @property
    def value(self) -> Any:
        """The metric that trials are ranked by."""

    @property
    def objectives(self) -> Mapping[str, Any]:
        """The further metrics, and those of constraints, by name."""


Trial = TypeVar("Trial", bound=Measured)


def feasible(trials: Sequence[Trial], constraints: Mapping[str, str]) -> list[Trial]:
    """Return the trials whose metrics meet every constraint: all of them where there is none.

    Args:
        trials: The search's trials.
        constraints: The criteria, such as `>= 0.9`, by metric.
    """

    def value(trial: Trial, name: str) -> float:
        return float(trial.objectives.get(name, math.nan))

    return [trial for trial in trials if all(meets(value(trial, name), text) for name, text in constraints.items())]


def best_trial(
    trials: Sequence[Trial], mode: str, constraints: Mapping[str, str] = NONE, objectives: Mapping[str, str] = NONE
) -> Trial | None:
    """Return the best finished trial that meets the constraints, of equal ones the earlier; None without one.

    Args:
        trials: The search's trials.
        mode: The direction of the metric that they are ranked by, "max" or "min".
        constraints: The criteria, such as `>= 0.9`, by metric.
        objectives: The directions of the further metrics, by name; with some, the trial is taken by `RULE`.
    """
    return taken(feasible(trials, constraints), mode, objectives)


def front(trials: Sequence[Trial], mode: str, objectives: Mapping[str, str]) -> list[Trial]:
    """Return the Pareto set of the finished trials that have every metric, by their numbers.

    Args:
        trials: The search's trials.
        mode: The direction of the metric that they are ranked by, "max" or "min".
        objectives: The directions of the further metrics, by name.
    """
    points = _points(trials, mode, objectives)
    kept = [nr for nr, point in points.items() if not any(beats(other, point) for other in points.values())]
    return [trial for trial in trials if trial.nr in kept]


def taken(trials: Sequence[Trial], mode: str, objectives: Mapping[str, str]) -> Trial | None:
    """Return the trial that is taken by `RULE`: of equally close ones the better by the first metric, then the earlier."""
    # By one metric alone, the best of all trials is the best of the set, which takes a comparison of each pair to find.
    found = front(trials, mode, objectives) if objectives else trials
    points = _points(found, mode, objectives)
    if not points:
        return None
    columns = [*zip(*points.values(), strict=True)]
    ideal, ranges = [max(column) for column in columns], [max(column) - min(column) for column in columns]

    def rank(trial: Trial) -> tuple[float, float, int]:
        gaps = zip(ideal, points[trial.nr], ranges, strict=True)
        far = math.fsum(((best - own) / width) ** 2 for best, own, width in gaps if width)
        return (far, -points[trial.nr][0], trial.nr)

    return min((trial for trial in found if trial.nr in points), key=rank)


def _points(trials: Sequence[Trial], mode: str, objectives: Mapping[str, str]) -> dict[int, Point]:
    """Return the metrics of the finished trials by number, larger is better; without trials that lack one."""
    modes = [mode, *objectives.values()]
    found = {}
    for trial in trials:
        values = [trial.value, *(trial.objectives.get(name) for name in objectives)]
        if trial.state == "finished" and all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            found[trial.nr] = tuple(value if one == "max" else -value for value, one in zip(values, modes, strict=True))
    return found


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return True if one of two is no worse than the other in any metric and better in one; larger is better."""
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
