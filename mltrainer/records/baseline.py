"""The baseline's evidence: the run, and how it stands to criterion and budget."""

from typing import Literal

from mltrainer.records.common import Acceptance, Measured, Metrics, Number, Part
from mltrainer.records.diagnostics import Change, Diagnosis
from mltrainer.records.run import Run


class Waiting(Part):
    """The usual share of time that steps waited for data, the largest that is allowed, and whether it was more."""

    share: Measured
    limit: Number
    starved: bool


class Reference(Part):
    """A plain model on the run's own splits; one that could not be measured has a `reason` in place of metrics.

    Attributes:
        name: What it is, in one word.
        title: The same for a report.
        rows: How many training rows it was fitted on.
        seconds: How long that took, with predicting the validation rows.
        metrics: Of the validation rows.
        interval: Of the run's own metric, lower and upper end.
        lead: The run's over this model in that metric, likewise; above zero where the run is better.
        verdict: How the run stands to it.
        reason: Why there are no metrics.
    """

    name: str
    title: str
    rows: int
    seconds: Measured
    metrics: Metrics
    interval: list[Number] | None
    lead: list[Number] | None
    verdict: Literal["ahead", "level", "behind"] | None
    reason: str | None


class Network(Part):
    """The run's best checkpoint, measured again beside them."""

    metrics: Metrics
    interval: list[Number] | None


class References(Part):
    """What plain models reach on the run's own splits.

    Attributes:
        metric: The run's own.
        samples: Validation rows, on which all are measured.
        train_samples: Training rows.
        level: Of the intervals.
        resamples: Behind each interval.
        network: The run.
        rows: The plain models, the weakest kind first.
        reason: Why there is no comparison.
    """

    metric: str
    samples: int
    train_samples: int
    level: Number
    resamples: int
    network: Network | None
    rows: list[Reference]
    reason: str | None


class UntaughtRun(Part):
    """A run of the same config without its teacher, under a seed; metrics of the validation rows."""

    run: str
    seed: int
    metrics: Metrics


class Untaught(Part):
    """The runs on record without the teacher, and the command that trains some."""

    runs: list[UntaughtRun]
    command: str


class FoldRow(Part):
    """The run that validated on one fold."""

    fold: int
    run: str
    state: str
    metrics: Metrics
    train_samples: int
    epochs: int
    wall_s: Number


class Folds(Part):
    """What each fold gave, the planned config's own first, with the mean and the standard deviation of each metric over them."""

    count: int
    rows: list[FoldRow]
    metrics: Metrics
    spread: Metrics


class Baseline(Part):
    """The run of the planned config; of one that failed, the changes that the diagnostics suggest.

    `diagnostics`: what they find in the run; before version 0.3 in one that failed alone.
    `references`: what plain models reach; None for a task of one's own, and in earlier records. `folds`: None without them.
    `untaught`: of a run with a teacher, those without.
    `unplanned`: the files that the run opened and planning did not bind; None where nobody looked.
    """

    run: Run
    budget_minutes: Number
    acceptance: list[Acceptance]
    waiting: Waiting
    diagnostics: list[Diagnosis] | None = None
    changes: list[Change] | None = None
    references: References | None = None
    folds: Folds | None = None
    unplanned: list[str] | None = None
    untaught: Untaught | None = None
