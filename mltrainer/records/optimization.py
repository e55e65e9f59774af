"""Optimization's evidence: a search with its winner's comparison, or the rule by which it was skipped."""

from typing import Any, Literal

from mltrainer.records.common import Acceptance, KeyChange, Measured, MetricChoice, Part


class Trial(Part):
    """One trial: its values by dotted key, and what they gave; `reason` says why one failed."""

    nr: int
    run: str
    values: dict[str, Any]
    seed: int
    state: Literal["finished", "failed"]
    value: Measured
    reason: str | None
    steps: int
    wall_s: Measured | None


class BaselineValue(Part):
    """The baseline's run and its metric."""

    run: str
    value: Measured | None


class Replay(Part):
    """Whether the best trial gave the same bits again."""

    run: str | None
    identical: bool


class Comparison(Part):
    """Baseline and candidate on the same fresh seeds; the gate computes what follows from it again."""

    seeds: list[int]
    baseline: list[Measured | None]
    candidate: list[Measured | None]
    test: str
    differences: list[Measured]
    mean_difference: Measured | None
    worst_difference: Measured | None


class Skipped(Part):
    """No search, because of `rule`; `config` is the planned one."""

    skipped: Literal[True]
    rule: str
    acceptance: list[Acceptance]
    config: dict[str, Any]


class Searched(Part):
    """A search; `cheaper` is what its trials change against the plan, `config` what finalization trains."""

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
