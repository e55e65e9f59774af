"""Optimization's evidence: a search with its winner's comparison, or the rule by which it was skipped."""

import statistics
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from mltrainer.records.claim import ClaimAnswer
from mltrainer.records.common import Acceptance, KeyChange, Measured, MetricChoice, Metrics, Number, Part
from mltrainer.records.equations import ROUNDING, Between, Equal, not_negative
from mltrainer.records.references import BoostingAhead
from mltrainer.records.stagnation import Stagnation, last_begun

Evaluated = Annotated[tuple[Number, Measured], Field(strict=False)]  # JSON has lists alone, which a strict tuple refuses


class FoldValue(Part):
    """A trial's result on one fold."""

    fold: int
    run: str
    value: Measured

    equations = not_negative("fold")


def _nearest(trial: "Trial") -> float | None:
    """Return the value that a trial must have: its folds' mean, or one of its evaluations'; None where none is known."""
    values = [row.value for row in trial.folds] or [value for _, value in trial.curve]
    known = [value for value in values if isinstance(value, (int, float))]
    reached = trial.value
    if not isinstance(reached, (int, float)) or len(known) < len(values) or not known:
        return None
    return statistics.fmean(known) if trial.folds else min(known, key=lambda value: abs(value - reached))


class Trial(Part):
    """One trial: its values by dotted key, and their result.

    Attributes:
        nr: The trial's number, from 1.
        run: The id of the run that trained it.
        values: The suggested values; a dimension that did not apply to the others' values is missing.
        seed: The seed that it was trained with.
        state: `finished`, `failed` or `pruned`; a pruned trial was stopped at a rung, its value is the metric there, and it is
            never the best.
        value: The value of the metric that it is ranked by.
        reason: The reason of its failure; None where it did not fail.
        steps: The number of optimizer steps that it trained.
        wall_s: Its wall time in seconds.
        curve: Pairs of the epochs trained and the metric there, one for each evaluation.
        pruned_at: The rung at which it was stopped, in epochs.
        attempts: The number of processes that it took.
        folds: The result on each fold, whose mean is the value; empty without folds, and of a trial that was stopped.
        objectives: The further metrics that the search was asked for, and those of its constraints.
    """

    nr: int
    run: str
    values: dict[str, Any]
    seed: int
    state: Literal["finished", "failed", "pruned"]
    value: Measured
    reason: str | None
    steps: int
    wall_s: Measured | None
    curve: list[Evaluated] = Field(default_factory=list)
    pruned_at: Number | None = None
    attempts: int = 1
    folds: list[FoldValue] = Field(default_factory=list)
    objectives: Metrics = Field(default_factory=dict)

    equations = (
        Equal("value", lambda trial: _nearest(trial) if trial.state != "failed" else None, ROUNDING),
        Between("curve.*.0", lambda trial: [0, *(epoch for epoch, _ in trial.curve)]),
        Between("attempts", 1),
        *not_negative("seed", "steps", "wall_s", "pruned_at"),
    )


class BaselineValue(Part):
    """The baseline's run, its metric, and its values of the searched keys."""

    run: str
    value: Measured | None
    values: dict[str, Any] = Field(default_factory=dict)


class Replay(Part):
    """The repetition of the best trial: whether it gave the same bits again."""

    run: str | None
    identical: bool


class Trained(Part):
    """The budget of one side of the comparison.

    Attributes:
        epochs: The number of epochs that it may train; None where only its program knows.
        steps: The number of optimizer steps of each run.
        samples: The number of training samples that each run saw, repeats included.
    """

    epochs: int | None
    steps: list[int]
    samples: list[int | None]

    equations = not_negative("epochs", "steps.*", "samples.*")


class Earlier(Part):
    """An earlier comparison with the same plan's baseline, by its number."""

    number: int
    candidate_sha256: str


class ComparisonKey(Part):
    """The identity of a comparison: digests of the plan without its seed, of the data and of the candidate; and its study."""

    plan_sha256: str
    data_sha256: str | None
    candidate_sha256: str
    study: str | None


class CountedComparison(ComparisonKey):
    """A comparison that was begun, with its number among those with the plan's baseline."""

    number: int = Field(gt=0)


def _of(differences: list[Measured], what: Callable[[list[float]], float]) -> float | None:
    """Return the value of a function of differences; None where there are none, or one is not finite."""
    known = [float(value) for value in differences if not isinstance(value, str)]
    return what(known) if known and len(known) == len(differences) else None


class Comparison(Part):
    """Baseline and candidate on the same fresh seeds; the gate computes the values that follow from it again.

    Attributes:
        budget: The budget of each side, by its name; empty where nothing was compared.
        number: The number of this comparison among those with the plan's baseline, from 1; None where they were not counted.
        earlier: The comparisons before it.
        plan_sha256: The digest of the baseline's config without its seed: comparisons with the same one are a series.
        data_sha256: The digest of the data: comparisons with the same one are a series.
        candidate_sha256: The digest of the candidate's config: a candidate that was compared before is no new comparison.
        study: The search that found the candidate.
    """

    seeds: list[int]
    baseline: list[Measured | None]
    candidate: list[Measured | None]
    test: str
    differences: list[Measured]
    mean_difference: Measured | None
    worst_difference: Measured | None
    budget: dict[Literal["baseline", "candidate"], Trained] = Field(default_factory=dict)
    number: int | None = None
    earlier: list[Earlier] = Field(default_factory=list)
    plan_sha256: str | None = None
    data_sha256: str | None = None
    candidate_sha256: str | None = None
    study: str | None = None

    equations = (
        Equal("mean_difference", lambda found: _of(found.differences, statistics.fmean), ROUNDING),
        Equal("worst_difference", lambda found: _of(found.differences, min)),
        Between("number", 1),
        *not_negative("seeds.*"),
    )


class Forecast(Part):
    """The search's forecast of its own time, in seconds; None where it was not known."""

    search_s: Measured | None
    comparison_s: Measured | None

    equations = not_negative("search_s", "comparison_s")


class Skipped(Part):
    """No search, because of `rule`; `config` is the planned one. `boosting`: gradient boosting that is ahead of the baseline.

    `claim`: the answer to the claim; None where none was made.
    """

    skipped: Literal[True]
    rule: str
    acceptance: list[Acceptance]
    config: dict[str, Any]
    boosting: BoostingAhead | None = None
    claim: ClaimAnswer | None = None


def _differences(found: "Searched") -> list[float] | None:
    """Return the candidate's lead over the baseline on each seed; None where it was not measured on all."""
    pairs = [*zip(found.comparison.baseline, found.comparison.candidate, strict=False)]
    known = [(float(old), float(new)) for old, new in pairs if isinstance(old, int | float) and isinstance(new, int | float)]
    sign = 1 if found.metric.mode == "max" else -1
    return [sign * (new - old) for old, new in known] if known and len(known) == len(pairs) else None


def _ended(found: "Searched") -> str:
    """Return the reason of a search's end that its trials allow: stagnation where they stagnate, and nowhere else."""
    last = last_begun(found.trials, found.lag, Stagnation(found.patience, found.constraints, found.metric.mode))
    if found.ended == "stagnation":
        return "stagnation" if last == len(found.trials) else "trials"
    return "stagnation" if last is not None and last < len(found.trials) else found.ended


class Searched(Part):
    """A search; `cheaper` are the changes of its trials against the plan, `config` is the config that finalization trains.

    A trial is suggested from the results of those up to `lag` trials before it; `rungs` are the epochs at which trials are
    stopped, `search_s` is the search's wall time, and `ended` is the reason of its end: the planned trials, the time,
    `minutes`, after which none begins, or `patience` trials in a row without a better one. `forecast` is the estimate of
    `search_s` and `comparison_s` made before them. `points` is the number of different trials of a space that a search goes
    through one by one; None of any other. `objectives` are further metrics with their direction: `best` is then the trial of
    the Pareto set that `records.pareto` takes. `constraints` are the criteria that it must meet, by metric. `boosting`:
    gradient boosting that is ahead of the baseline; None where none is. `claim`: the answer to the claim; None where none was
    made.
    """

    skipped: Literal[False]
    strategy: str
    seed: int
    space: dict[str, Any]
    cheaper: list[KeyChange]
    planned_trials: int
    metric: MetricChoice
    trials: list[Trial]
    best: int | None
    baseline: BaselineValue
    replay: Replay
    comparison: Comparison
    promoted: Literal["candidate", "baseline"]
    acceptance: list[Acceptance]
    config: dict[str, Any]
    lag: int = 0
    rungs: list[Number] = Field(default_factory=list)
    search_s: Measured | None = None
    ended: Literal["trials", "time", "stagnation"] = "trials"
    patience: int | None = None
    minutes: Measured | None = None
    comparison_s: Measured | None = None
    forecast: Forecast | None = None
    points: int | None = None
    objectives: dict[str, Literal["max", "min"]] = Field(default_factory=dict)
    constraints: dict[str, str] = Field(default_factory=dict)
    boosting: BoostingAhead | None = None
    claim: ClaimAnswer | None = None

    equations = (
        Equal("seed", "config.seed"),
        Equal("planned_trials", lambda found: len(found.trials)),
        Equal("trials.*.nr", lambda found: [*range(1, len(found.trials) + 1)]),
        Equal("comparison.differences", _differences, ROUNDING),
        Equal("ended", _ended),
        Between("best", 1, "planned_trials"),
        *not_negative("lag", "rungs.*", "search_s", "minutes", "comparison_s", "points", "patience"),
    )
