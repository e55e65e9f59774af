"""A checkpoint chosen from those of a run: by one metric, or by several, with what each would give up. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mltrainer.checkpointing.inventory import Listed
from mltrainer.checkpointing.ranking import larger_is_better, rank
from mltrainer.configs.project import Metric
from mltrainer.errors import InputError
from mltrainer.records.pareto import RULE, beats, front, taken
from mltrainer.tasks.metric_names import direction

Modes = Mapping[str, str]  # "max" or "min" by the metric's name


@dataclass(frozen=True)
class Choice:
    """A checkpoint as a choice.

    Attributes:
        nr: Its place in the ranking, from 1.
        run: Its run; `step`, `path`: as in the inventory.
        metrics: Its values of the metrics that are chosen by.
        behind: By how much it is worse than the best value of each; 0.0 where it has the best.
        beaten_by: The step of a checkpoint that is as good in each metric and better in one; None of one in the Pareto set.
        selected: Whether it is the one to take.
    """

    nr: int
    run: str
    step: int
    path: str
    metrics: dict[str, float]
    behind: dict[str, float]
    beaten_by: int | None
    selected: bool

    def written(self) -> dict[str, Any]:
        """Return it as `checkpoints select --json` prints it."""
        return dict(vars(self))


@dataclass(frozen=True)
class _Point:
    """A checkpoint in the form of a trial, for the Pareto set."""

    nr: int
    value: float
    objectives: dict[str, float]
    state: str = "finished"


def modes_of(asked: Sequence[str], metric: Metric, rows: Sequence[Listed]) -> dict[str, str]:
    """Return the metrics to choose by with their directions, from `NAME` or `NAME:max`; none are the project's own.

    Raises:
        InputError: No checkpoint was measured by one of them, or its direction is not known.
    """
    there = {key for row in rows for key in row.metrics or {}}
    found = {}
    for text in asked or (metric.name,):
        name, _, given = text.partition(":")
        if name not in there:
            raise InputError.unknown("metric", name, sorted(there), of="of a checkpoint", where="--by")
        mode = given or (metric.mode if name == metric.name else direction(name))
        if mode not in ("max", "min"):
            what = f"{name}: expected max or min, found {given!r}" if given else f"{name} is none of the built-in metrics"
            raise InputError(what, where="--by", hint=f"--by {name}:max, or {name}:min")
        found[name] = mode
    return found


def choices(rows: Sequence[Listed], modes: Modes, metric: Metric) -> list[Choice]:
    """Return the checkpoints that were measured, the best first.

    By one metric that is the best value; of equal ones the smaller loss, then the earlier step. By several it is the Pareto set's
    member that `records.pareto.RULE` takes; the others follow by the first metric.

    Args:
        rows: The checkpoints of one run.
        modes: The metrics with their directions.
        metric: The project's, which says what breaks ties.
    """
    found = [row for row in rows if row.step is not None and all(name in (row.metrics or {}) for name in modes)]
    first, *others = modes
    by = Metric(name=first, mode="max" if modes[first] == "max" else "min", ties=metric.ties)
    found.sort(key=lambda row: (rank(row.metrics or {}, by), -(row.step or 0)), reverse=True)
    points = [_Point(nr, _value(row, first), {name: _value(row, name) for name in others}) for nr, row in enumerate(found)]
    objectives = {name: modes[name] for name in others}
    on_front = {point.nr for point in front(points, modes[first], objectives)}
    best = taken(points, modes[first], objectives) if others else None
    chosen = best.nr if best is not None else 0
    order = sorted(range(len(found)), key=lambda nr: nr != chosen)
    beaten = {nr: _beater(found, nr, modes) for nr in order if nr not in on_front}
    return [_choice(nr, found[place], found, modes, beaten.get(place), place == chosen) for nr, place in enumerate(order, 1)]


def _choice(nr: int, row: Listed, rows: Sequence[Listed], modes: Modes, beaten_by: int | None, selected: bool) -> Choice:
    assert row.step is not None  # as those without are left out
    metrics = {name: _value(row, name) for name in modes}
    ideal = {name: max(_good(other, name, mode) for other in rows) for name, mode in modes.items()}
    behind = {name: ideal[name] - _good(row, name, mode) for name, mode in modes.items()}
    return Choice(nr, row.run, row.step, row.path, metrics, behind, beaten_by, selected)


def _value(row: Listed, name: str) -> float:
    return float((row.metrics or {})[name])  # records hold "nan" as text


def _good(row: Listed, name: str, mode: str) -> float:
    return larger_is_better(_value(row, name), mode)


def _beater(rows: Sequence[Listed], place: int, modes: Modes) -> int | None:
    """Return the step of the first checkpoint that is as good in each metric and better in one."""
    own = [_good(rows[place], name, mode) for name, mode in modes.items()]
    for other in rows:
        if beats([_good(other, name, mode) for name, mode in modes.items()], own):
            return other.step
    return None


def rule(modes: Modes) -> str:
    """Return the rule by which a checkpoint was selected, in words."""
    if len(modes) > 1:
        return RULE
    ((name, mode),) = modes.items()
    return f"the {'largest' if mode == 'max' else 'smallest'} {name} on validation, of equal ones the smaller loss"
