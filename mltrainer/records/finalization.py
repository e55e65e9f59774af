"""Finalization's evidence: the last run, its reproduction, its exports, and every opening of the test split."""

from typing import Any

from mltrainer.records.baseline import References
from mltrainer.records.common import Acceptance, Divergence, Export, InputRow, KeyChange, Measured, Metrics, Number, Part
from mltrainer.records.diagnostics import Assessment, Change, Diagnosis
from mltrainer.records.planning import Data, Environment
from mltrainer.records.run import Run


class Compared(Part):
    """A run and the same training again.

    Attributes:
        run: The run.
        identical: Whether all that was compared has the same bits.
        grade: The grade of the reproduction.
        reachable: The best grade that this machine can reach.
        loss_difference: The largest relative difference of a loss; None where bits are the same, or it was ended early.
        metric_difference: The absolute difference of the chosen metric, likewise.
        steps_compared: How many steps were compared.
        first_divergence: Where the two part.
    """

    run: str
    identical: bool
    grade: str
    reachable: str
    loss_difference: Measured | None
    metric_difference: Measured | None
    steps_compared: int
    first_divergence: Divergence | None


class Reproduction(Compared):
    """What the same training in a fresh process showed; numbers are compared only where bits differ.

    `weights_tree_sha256`: as of the run, where that has one.
    `outputs`: of each file that a program left, whether it was the same again.
    """

    weights_sha256: str
    chain_head: str
    wall_s: Number
    weights_tree_sha256: str | None = None
    outputs: dict[str, bool] | None = None


class Opening(Part):
    """One look at a test split: by which run, on which data and rows; `chain` covers it and all before it."""

    nr: int
    run: str
    purpose: str
    data_sha256: str | None = None
    weights_sha256: str | None = None
    rows_sha256: str | None = None
    chain: str | None = None


class RowDigests(Part):
    """By which a test split is known again: salted digests of its rows, all of few and the smallest of many."""

    samples: int
    salt: str
    digests: str


class Intervals(Part):
    """The interval of each metric over samples drawn anew, by its lower and upper end; `reason`: why metrics have none."""

    level: Number
    resamples: int
    bounds: dict[str, list[Number]]
    reason: str | None


class WayBack(Part):
    """What a model that misses on validation can be tried with next: values by dotted key, or another search than this one.

    Attributes:
        set: The values.
        trials: Of the search.
        search: What the search's report advises; records of versions that did not note it advise more trials.
    """

    set: dict[str, Any]
    trials: int | None
    search: str | None = None


class Test(Part):
    """What the test split showed, with its intervals; no samples: there is none, or it is `sealed`, for the reason told."""

    samples: int
    metrics: Metrics
    openings: list[Opening]
    intervals: Intervals | None = None
    sealed: str | None = None
    splits: dict[str, RowDigests] | None = None


class Finalization(Part):
    """The final model."""

    run: Run
    config: dict[str, Any]
    changed: list[KeyChange]
    reproduction: Reproduction
    exports: list[Export]
    inference: dict[str, Any]
    delivered_sha256: str
    delivered_tree_sha256: str | None = None
    test: Test
    model_files: list[InputRow]
    acceptance: list[Acceptance]
    runs_tried: int
    data: Data
    environment: Environment
    diagnostics: list[Diagnosis] | None = None
    expected_diagnostics: list[str] | None = None
    assessment: Assessment | None = None
    changes: list[Change] | None = None
    way_back: WayBack | None = None
    references: References | None = None
