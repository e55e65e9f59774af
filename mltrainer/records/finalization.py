"""Finalization's evidence: the last run, its reproduction, its exports, and every opening of the test split."""

from typing import Any, Literal

from pydantic import Field

from mltrainer.records.baseline import Untaught
from mltrainer.records.claim import ClaimAnswer
from mltrainer.records.common import (
    Acceptance,
    Cost,
    Divergence,
    Export,
    FileRow,
    InputRow,
    KeyChange,
    Measured,
    Metrics,
    Number,
    Part,
)
from mltrainer.records.diagnostics import Assessment, Change, Diagnosis
from mltrainer.records.equations import ROUNDING, Between, Equal, not_negative, shares
from mltrainer.records.planning import Data, Environment
from mltrainer.records.references import BoostingAhead, References, of_references
from mltrainer.records.run import LackingClasses, Run


class Compared(Part):
    """A run and the same training again.

    Attributes:
        run: The run.
        identical: Whether all compared values have the same bits.
        grade: The grade of the reproduction.
        reachable: The best grade that this machine can reach.
        loss_difference: The largest relative difference of a loss; None where bits are the same, or it was ended early.
        metric_difference: The absolute difference of the chosen metric; None in the same cases.
        steps_compared: The number of steps that were compared.
        first_divergence: The first step at which the two differ; None where none does.
    """

    run: str
    identical: bool
    grade: str
    reachable: str
    loss_difference: Measured | None
    metric_difference: Measured | None
    steps_compared: int
    first_divergence: Divergence | None

    equations = not_negative("loss_difference", "metric_difference", "steps_compared")


class Reproduction(Compared):
    """The result of the same training in a fresh process; numbers are compared only where bits differ.

    `weights_tree_sha256`: the same digest as the run's, where the run has one.
    `outputs`: for each file that a program left, whether it was the same again.
    """

    weights_sha256: str
    chain_head: str
    wall_s: Number
    weights_tree_sha256: str | None = None
    outputs: dict[str, bool] | None = None

    equations = (*Compared.equations, *not_negative("wall_s"))


class Opening(Part):
    """One look at a test split: the run, the data and the rows; `chain` is the digest over it and all looks before it."""

    nr: int
    run: str
    purpose: str
    data_sha256: str | None = None
    weights_sha256: str | None = None
    rows_sha256: str | None = None
    chain: str | None = None


class RowDigests(Part):
    """Salted digests of a test split's rows, by which it is recognized: all of a small split, the smallest of a large one."""

    samples: int
    salt: str
    digests: str

    equations = (Between("samples", lambda rows: len(rows.digests.split())),)


class Intervals(Part):
    """The bootstrap interval of each metric, by its lower and upper end; `reason`: why metrics have none."""

    level: Number
    resamples: int
    bounds: dict[str, list[Number]]
    reason: str | None

    equations = (
        *shares("level"),
        Between("resamples", lambda found: 1 if found.bounds else 0),
        Between("bounds.*.0", None, lambda found: [ends[1] for ends in found.bounds.values()]),
    )


class WayBack(Part):
    """The next things to try for a model that misses on validation: values by dotted key, or another search.

    Attributes:
        set: The values, by dotted key; empty after a search.
        trials: The number of the search's trials; None where nothing was searched.
        search: The advice of the search's report; None where nothing was searched.
    """

    set: dict[str, Any]
    trials: int | None
    search: str | None = None

    equations = not_negative("trials")


class Conformal(Part):
    """The settings that make the delivered model's sets or intervals, as its inference.json has them; from the validation split.

    Attributes:
        coverage: The share of rows that are to be covered.
        score: The score's name: lac, aps or residual.
        threshold: The least probability of a class in a set (lac), the least probability of all less likely classes together
            (aps; 1: the likeliest class alone), or half of an interval's width (residual).
        samples: The number of samples that calibrated it.
        rank: The rank of the threshold among the samples' scores, from the best fitting one.
    """

    coverage: Number
    score: str
    threshold: Number
    samples: int
    rank: int

    equations = (*shares("coverage"), Between("rank", 1, "samples"))


class Weakest(Part):
    """The class whose rows are covered least often."""

    name: str
    samples: int
    covered: int

    equations = (Between("covered", 0, "samples"),)


class Coverage(Part):
    """The coverage of the sets or intervals on the test split: how often they hold the truth.

    Attributes:
        samples: The number of samples that were measured.
        covered: The number of them that are covered.
        share: The share of them that are covered.
        level: The confidence of `interval`.
        interval: The confidence interval of the share, by its two ends (Wilson, 1927).
        mean_size: The mean number of classes in a set, or the mean width of an interval.
        alone: The number of sets that hold one class; None of intervals.
        weakest: The class that is covered least often; None of intervals.
    """

    samples: int
    covered: int
    share: Number
    level: Number
    interval: list[Number]
    mean_size: Number
    alone: int | None = None
    weakest: Weakest | None = None

    equations = (
        Between("covered", 0, "samples"),
        Between("alone", 0, "samples"),
        Between("weakest.samples", 0, "samples"),
        Equal("share", lambda found: found.covered / found.samples if found.samples else None, ROUNDING),
        Between("share", "interval.0", "interval.1"),
        *shares("level"),
        *not_negative("mean_size"),
    )


class Test(Part):
    """The result on the test split, with its intervals; 0 samples: there is no test split, or it is `sealed` for that reason.

    `lacking`: the classes of which it has no sample; None where it has all.
    """

    samples: int
    metrics: Metrics
    openings: list[Opening]
    intervals: Intervals | None = None
    sealed: str | None = None
    splits: dict[str, RowDigests] | None = None
    coverage: Coverage | None = None
    lacking: list[str] | None = None

    equations = (
        Equal("openings.*.nr", lambda test: [*range(1, len(test.openings) + 1)]),
        Equal("coverage.samples", "samples"),
        *not_negative("samples"),
    )


class Member(Part):
    """A model that was combined with others, or could have been.

    Attributes:
        run: The run that trained it.
        path: The folder of its checkpoint.
        step: The step after which it was saved.
        files: The checkpoint's files.
        weights_sha256: The digest of its weights.
        metrics: Its metrics on the validation split.
        used: Whether it is part of the combination.
        config: The config that trained it, where that is not the final config.
    """

    run: str
    path: str
    step: int
    files: list[FileRow]
    weights_sha256: str
    metrics: Metrics
    used: bool
    config: dict[str, Any] | None = None

    equations = not_negative("step")


class LeftOut(Part):
    """A model that could not be combined with the others, and why."""

    run: str
    path: str
    reason: str


class Addition(Part):
    """A member, by its number from 1, tried in a greedy average: the validation metrics with it, and whether it stayed."""

    member: int
    metrics: Metrics
    kept: bool

    equations = (Between("member", 1),)


class Combination(Part):
    """Several models made into one.

    Attributes:
        of: The kind of its members: the final run's checkpoints, or the best trials and the final run.
        how: The mean of all weights, of the weights that made it no worse, or of the members' predictions.
        members: The models, the best on validation first.
        left_out: The models that do not fit.
        additions: The members that a greedy average tried, in order.
        path: The folder of the combination's checkpoint.
        files: The checkpoint's files.
        weights_sha256: The digest of its weights.
        measured: The names of the batch-norm statistics that were measured again.
        metrics: Its metrics on the validation split.
        rebuilt_sha256: The digest of the weights of the same combination, made again in a fresh process.
        delivered: Whether it is delivered: only where it is better on validation than each single model.
        single_cost: The cost of the final run's model.
        cost: The cost of the combination.
    """

    of: Literal["checkpoints", "trials"]
    how: Literal["uniform", "greedy", "ensemble"]
    members: list[Member]
    left_out: list[LeftOut] = Field(default_factory=list)
    additions: list[Addition] = Field(default_factory=list)
    path: str
    files: list[FileRow]
    weights_sha256: str
    measured: list[str] = Field(default_factory=list)
    metrics: Metrics
    rebuilt_sha256: str
    delivered: bool
    single_cost: Cost
    cost: Cost


class Finalization(Part):
    """The final model; `combination`: a model made of several, where that was asked for.

    `baseline_metrics`: the baseline's on validation, the mean over the folds where there are any.
    `references`: plain models on the validation rows, `tested_references`: on the test rows, once they were opened. `boosting`:
    gradient boosting that is ahead of the run; None where none is. `lacking`: None where each split has all classes.
    `claim`: the answer to the claim; None where none was made.
    """

    run: Run
    config: dict[str, Any]
    changed: list[KeyChange]
    reproduction: Reproduction
    exports: list[Export]
    inference: dict[str, Any]
    delivered_sha256: str
    delivered_tree_sha256: str | None = None
    test: Test
    baseline_metrics: Metrics
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
    tested_references: References | None = None
    boosting: BoostingAhead | None = None
    conformal: Conformal | None = None
    combination: Combination | None = None
    untaught: Untaught | None = None
    lacking: LackingClasses | None = None
    claim: ClaimAnswer | None = None

    equations = (
        *of_references("references"),
        *of_references("tested_references"),
        Equal("reproduction.run", "run.id"),
        Equal("reproduction.steps_compared", lambda found: found.run.steps if found.reproduction.identical else None),
    )

    @property
    def delivered_combination(self) -> Combination | None:
        """The combination, where it is delivered in place of the run's own model."""
        return self.combination if self.combination is not None and self.combination.delivered else None

    @property
    def validation(self) -> Metrics:
        """The metrics of the delivered model before the test split: the run's, or over them the combination's."""
        combined = self.delivered_combination
        return {**self.run.metrics, **(combined.metrics if combined else {})}
