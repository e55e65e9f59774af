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


class Conformal(Part):
    """By what the delivered model's sets or intervals are made, as its inference.json has it; from the validation split.

    Attributes:
        coverage: The share of rows that are to be covered.
        score: lac, aps or residual.
        threshold: Of lac the least probability of a class in a set, of aps the least probability of all less likely classes
            together (1: the likeliest class alone), of residual half of an interval's width.
        samples: How many calibrated it.
        rank: The place of the threshold among their scores, from the best fitting one.
    """

    coverage: Number
    score: str
    threshold: Number
    samples: int
    rank: int


class Weakest(Part):
    """The class whose rows are covered least often."""

    name: str
    samples: int
    covered: int


class Coverage(Part):
    """How often the sets or intervals held the truth on the test split.

    Attributes:
        samples: How many were measured.
        covered: How many of them are covered.
        share: Which share that is.
        level: The confidence of `interval`.
        interval: That of the share, by its two ends (Wilson, 1927).
        mean_size: The mean number of classes in a set, or the mean width of an interval.
        alone: How many sets hold one class; None of intervals.
        weakest: Of classes.
    """

    samples: int
    covered: int
    share: Number
    level: Number
    interval: list[Number]
    mean_size: Number
    alone: int | None = None
    weakest: Weakest | None = None


class Test(Part):
    """What the test split showed, with its intervals; no samples: there is none, or it is `sealed`, for the reason told."""

    samples: int
    metrics: Metrics
    openings: list[Opening]
    intervals: Intervals | None = None
    sealed: str | None = None
    splits: dict[str, RowDigests] | None = None
    coverage: Coverage | None = None


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
    conformal: Conformal | None = None
