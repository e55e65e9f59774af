"""The monitor's views of a project and its runs, for the terminal and the browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from mltrainer.figures.series import Chart
from mltrainer.follow.log import ShownEvaluation
from mltrainer.follow.steps import StepsView
from mltrainer.follow.usage import Sample
from mltrainer.records.event import Study


@dataclass(frozen=True)
class MetricShown:
    """The metric that chooses the best checkpoint, and which of two values is better."""

    name: str = "loss"
    mode: str = "min"


# --- a project ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemShown:
    """An item of a gate with its verdict."""

    id: str
    statement: str
    verdict: str
    mend: str | None
    evidence: Any


@dataclass(frozen=True)
class PhaseShown:
    """A phase with its gate."""

    name: str
    state: str
    reasons: Sequence[str]
    items: Sequence[ItemShown]


@dataclass(frozen=True)
class NextStep:
    """The next command and its reason."""

    phase: str
    command: str | None
    why: str


@dataclass(frozen=True)
class ReportFile:
    """A rendered report, by its path from the project's folder."""

    path: str
    phase: str
    title: str


class StudyShown(Study):
    """A running search, and its progress in words."""

    text: str


@dataclass(frozen=True)
class RunSummary:
    """Summary of a run.

    Attributes:
        id: The run's id.
        phase: Phase that began it.
        parent: Id of the run that it was forked from, if any.
        state: State of its result, else `running`, `failed` or `interrupted`.
        begun: Time of its start, in seconds since 1970.
        metric: Metric that chooses its best checkpoint.
        planned: Number of planned epochs.
        step: The last step so far.
        steps: Number of planned steps.
        epoch: Epochs trained so far.
        metrics: Metrics of its best evaluation; those of the training set begin with `train_`.
        seconds: Wall time in seconds.
        name: Name given by people, if any.
        tags: Tags given by people.
    """

    id: str
    phase: str | None
    parent: str | None
    state: str
    begun: float | None
    metric: MetricShown
    planned: int | None
    step: int | None
    steps: int | None
    epoch: float | None
    metrics: Mapping[str, Any]
    seconds: float | None
    name: str | None = None
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class ProjectShown:
    """A project as it is now; `unasked` are the default runs."""

    project: str
    folder: str
    phases: Sequence[PhaseShown]
    next: NextStep | None
    study: StudyShown | None
    runs: Sequence[RunSummary]
    unasked: Sequence[str]
    reports: Sequence[ReportFile]


# --- a run ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FindingShown:
    """A diagnostic that fired; `epoch` and `step` are known if it was reported during training."""

    id: str = ""
    severity: str = ""
    title: str = ""
    reason: str = ""
    page: str = ""
    epoch: float | None = None
    step: int | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[Any] = ()


@dataclass(frozen=True)
class Planned:
    """The planned length of a run; None if unknown yet."""

    steps: int | None
    epochs: int | None


@dataclass(frozen=True)
class Facts:
    """A run's facts beside its curves; `charts` are the charts of its curves, `speed` is that of the whole run in words."""

    state: str
    stop_reason: str | None
    metric: MetricShown
    layers: Sequence[str]
    planned: Planned
    wall_s: float | None
    speed: str | None
    tokens_per_sample: int | None
    nonfinite: Mapping[str, Any] | None
    interruptions: Sequence[Mapping[str, Any]]
    findings: Sequence[FindingShown]
    usage: Sample | None
    config: Mapping[str, Any]
    charts: Sequence[Chart]


@dataclass(frozen=True)
class News:
    """Updates of a run; `whole`: the run was restarted, and this is all of it. `facts` are None if unchanged."""

    run: str
    whole: bool
    first: int
    last: int
    rate: float | None
    steps: StepsView
    rows: Sequence[ShownEvaluation]
    facts: Facts | None


def sent(value: Any) -> bytes:
    """Return a value of this module as JSON for the browser."""
    # A browser's JSON has no NaN, and would refuse the whole text.
    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_entries).encode()


def _entries(value: Any) -> Any:
    return value.model_dump(exclude={"event"}, exclude_unset=True) if isinstance(value, BaseModel) else vars(value)
