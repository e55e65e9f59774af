"""Diagnostics' evidence: every rule's finding on the baseline, and a recommendation."""

from typing import Any

from mltrainer.records.common import Acceptance, Metrics, Number, Part
from mltrainer.records.equations import Between, not_negative
from mltrainer.records.references import BoostingAhead
from mltrainer.records.run import Errors, Program, Run


class Suggestion(Part):
    """A change to try, by dotted key."""

    why: str
    set: dict[str, Any]


class Change(Suggestion):
    """A suggestion in values for the project's config, with the page that explains it."""

    page: str


class Diagnosis(Part):
    """One rule's finding, with the page that explains it; `evidence` is the rule's own."""

    id: str
    title: str
    page: str
    state: str
    reason: str
    evidence: dict[str, Any]
    thresholds: dict[str, Number]
    severity: str
    causes: list[str]
    suggestions: list[Suggestion]
    figures: list[str]


class AdvisedDiagnosis(Diagnosis):
    """A finding, with its suggestions in values for the config of its run."""

    changes: list[Suggestion]


class Assessment(Part):
    """Curves, fit and gradients, judged from the findings.

    `beats_constant`: whether the chosen metric on validation is better than a constant answer's, with `constant_reason`; None
    where that is not known.
    """

    curves: str
    fit: str
    fit_reason: str
    gradients: str
    gradients_reason: str
    state: str
    beats_constant: bool | None = None
    constant_reason: str | None = None


class Mistake(Part):
    """A confusion of two classes: the number of samples of one that were predicted as the other."""

    true: str
    predicted: str
    samples: int

    equations = (Between("samples", 1),)


class Diagnostics(Part):
    """The baseline's diagnosis.

    `changes` are the findings' suggestions for this config. `evaluations` and `layers` are the numbers of the run's, `numerics`
    is its profile; records that lack them hold the `run` itself. `errors` are the run's; `mistakes` are the most frequent
    confusions of classes. `program` is the program that trained, where one did. `boosting`: gradient boosting that is ahead of
    the run. `warnings`: planning's warnings about the data. `claim`: the hypothesis of the claim, for which a search
    follows in any case.
    """

    run_id: str
    run: Run | None = None
    evaluations: int | None = None
    layers: int | None = None
    numerics: str | None = None
    metrics: Metrics
    diagnostics: list[Diagnosis]
    expected_diagnostics: list[str]
    assessment: Assessment
    acceptance: list[Acceptance]
    recommendation: str
    reasons: list[str]
    changes: list[Change] | None = None
    errors: Errors | None = None
    mistakes: list[Mistake] | None = None
    program: Program | None = None
    boosting: BoostingAhead | None = None
    warnings: list[str] | None = None
    claim: str | None = None

    equations = not_negative("evaluations", "layers")

    @property
    def evaluation_count(self) -> int:
        """The number of evaluations in the curves."""
        return len(self.run.history) if self.run else self.evaluations or 0

    @property
    def layer_count(self) -> int:
        """The number of layers whose gradients were recorded."""
        return len(self.run.layers) if self.run else self.layers or 0
