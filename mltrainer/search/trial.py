"""A study's runs and trials: suggestions, outcomes and ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mltrainer.configs.project import Metric
from mltrainer.records.run import Evaluation, RunResult
from mltrainer.search.space import Values
from mltrainer.workspace import plain

State = Literal["finished", "failed", "pruned"]
Evaluations = list[Evaluation]
Rungs = list[tuple[float, float]]  # epochs, each with the least value to go on

# Entries of a trial in the study's result, and so in optimization's record; the last two where there are any.
RECORDED = (
    *("nr", "run", "values", "seed", "state", "value", "reason", "steps", "wall_s"),
    *("curve", "pruned_at", "attempts", "folds", "objectives"),
)


@dataclass(frozen=True)
class Trained:
    """A run that has ended, in the form that a study needs.

    Attributes:
        id: The run's id; empty where no run was made.
        metrics: The metrics of its best checkpoint; empty of a run that could not be trained.
        history: Its evaluations.
        steps: The number of steps that it trained.
        wall_s: Its wall time in seconds; None where it could not be trained.
        reason: The reason why it could not be trained; else None.
        result: The result in its file; None where it could not be trained.
    """

    id: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    history: Evaluations = field(default_factory=list)
    steps: int = 0
    wall_s: float | None = None
    reason: str | None = None
    result: RunResult | None = None


@dataclass(frozen=True)
class FoldOutcome:
    """The outcome of one of a trial's folds."""

    fold: int
    run: str
    value: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run, or of a trial with its folds.

    Attributes:
        state: `finished`, `failed`, or `pruned` where it was stopped at a rung.
        value: The metric; of a pruned trial its best up to the rung; NaN of a failed one.
        reason: The reason of its failure; else None.
        folds: The outcome of each of several folds.
    """

    state: State
    value: Any
    reason: str | None = None
    folds: Sequence[FoldOutcome] = ()

    def told(self, metric: str) -> str:
        """Return the outcome in words: the metric, or the reason of a failure."""
        return f"failed: {self.reason}" if self.reason else f"{metric} {self.value:.4g}"


@dataclass(frozen=True)
class Suggested:
    """A trial before it is trained.

    Attributes:
        nr: The trial's number, from 1.
        values: Its values, by dotted key.
        seed: The seed that it is trained with.
        rungs: The rungs at which it may be stopped, in epochs.
        limits: The least value to go on at each rung that has one.
        fault: The reason why it cannot be trained; else None.
    """

    nr: int
    values: Values
    seed: int
    rungs: Sequence[float] = ()
    limits: Rungs = field(default_factory=list)
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ended(Outcome):
    """The end of a trial, or of a run of the comparison, as the machine that trained it reports it.

    Attributes:
        run: The id of the run that trained it; of several folds the first one's.
        steps: The number of steps that it trained.
        wall_s: Its wall time in seconds; None where it could not be trained.
        history: Its evaluations.
        curve: The epochs and the metric of each evaluation.
        pruned_at: The rung at which it was stopped, in epochs; else None.
        attempts: The number of processes that it took.
        samples: The number of training samples that a run of the comparison saw; None where unknown.
        objectives: The further metrics that the search was asked for, and those of its constraints, by name.
    """

    run: str
    steps: int
    wall_s: float | None
    history: Evaluations = field(default_factory=list)
    curve: Sequence[Sequence[Any]] = ()
    pruned_at: float | None = None
    attempts: int = 1
    samples: int | None = None
    objectives: Mapping[str, Any] = field(default_factory=dict)

    def told(self, metric: str) -> str:
        """Return the end in words: its metric, or the reason of its failure."""
        if self.state == "pruned":
            return f"{metric} {float(self.value):.4g}, ended at epoch {self.pruned_at}"
        return super().told(metric)

    def encoded(self, metric: Metric) -> str:
        """Return the end as JSON, its evaluations reduced to the values that rungs need."""
        history = [[one.epoch, one.step, *(one.validation.get(name) for name in (metric.name, "loss"))] for one in self.history]
        whole = {**vars(self), "folds": [asdict(fold) for fold in self.folds], "history": history, "metric": metric.name}
        known = {key: value for key, value in whole.items() if value or key not in ("folds", "samples", "objectives")}
        return json.dumps(plain(known), separators=(",", ":"))

    @classmethod
    def decoded(cls, text: str) -> Ended:
        """Return the end in a text from `encoded`."""
        row = json.loads(text)
        name = row.pop("metric")
        folds = [FoldOutcome(**fold) for fold in row.pop("folds", ())]
        history = [Evaluation.at(epoch, step, {"loss": loss, name: value}) for epoch, step, value, loss in row.pop("history")]
        return cls(**{**row, "value": float(row["value"])}, history=history, folds=folds)


@dataclass(frozen=True, kw_only=True)
class Trial(Ended):
    """A trial that has ended: its suggestion and its end."""

    nr: int
    values: Values
    seed: int
    rungs: Sequence[float] = ()

    @classmethod
    def of(cls, suggested: Suggested, ended: Ended) -> Trial:
        """Return the trial of a suggestion and its end."""
        return cls(nr=suggested.nr, values=suggested.values, seed=suggested.seed, rungs=suggested.rungs, **vars(ended))

    def recorded(self) -> dict[str, Any]:
        """Return the trial's entries in the study's result."""
        known = {**vars(self), "folds": [asdict(fold) for fold in self.folds]}
        return {key: known[key] for key in RECORDED if known[key] or key not in ("folds", "objectives")}
