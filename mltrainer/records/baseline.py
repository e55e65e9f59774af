"""The baseline's evidence: the run, compared with criterion and budget."""

from mltrainer.records.common import Acceptance, Measured, Metrics, Number, Part
from mltrainer.records.diagnostics import Change, Diagnosis
from mltrainer.records.equations import Equal, not_negative, shares
from mltrainer.records.references import BoostingAhead, References, of_references
from mltrainer.records.run import LackingClasses, Run


class Waiting(Part):
    """The usual share of time that steps waited for data, the largest share allowed, and whether it was exceeded."""

    share: Measured
    limit: Number
    starved: bool

    equations = (*not_negative("share"), *shares("limit"))


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

    equations = not_negative("fold", "train_samples", "epochs", "wall_s")


class Folds(Part):
    """The result on each fold, the planned config's own first, with each metric's mean and standard deviation over them."""

    count: int
    rows: list[FoldRow]
    metrics: Metrics
    spread: Metrics

    equations = (Equal("count", lambda folds: len(folds.rows)), *not_negative("spread.*"))


class Baseline(Part):
    """The run of the planned config; of one that failed, the changes that the diagnostics suggest.

    `diagnostics`: the findings in the run.
    `references`: plain models on the same rows; None for a custom task. `folds`: None without folds.
    `boosting`: gradient boosting that is ahead of the run. `untaught`: runs without the teacher, of a run with one. `lacking`:
    None where each split has all classes.
    `unplanned`: the files that the run opened and planning did not bind; None where that was not observed.
    """

    run: Run
    budget_minutes: Number
    acceptance: list[Acceptance]
    waiting: Waiting
    diagnostics: list[Diagnosis] | None = None
    changes: list[Change] | None = None
    references: References | None = None
    boosting: BoostingAhead | None = None
    folds: Folds | None = None
    unplanned: list[str] | None = None
    untaught: Untaught | None = None
    lacking: LackingClasses | None = None

    equations = (
        Equal("folds.rows.0.run", "run.id"),
        Equal("folds.rows.0.metrics", "run.metrics"),
        Equal("folds.rows.0.epochs", "run.epochs"),
        Equal("folds.rows.0.train_samples", "run.train_samples"),
        *of_references("references"),
    )
