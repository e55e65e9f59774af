"""The baseline's evidence: the run, and how it stands to criterion and budget."""

from mltrainer.records.common import Acceptance, Measured, Number, Part
from mltrainer.records.diagnostics import Change, Diagnosis
from mltrainer.records.run import Run


class Waiting(Part):
    """The usual share of time that steps waited for data, the largest that is allowed, and whether it was more."""

    share: Measured
    limit: Number
    starved: bool


class Baseline(Part):
    """The run of the planned config; of one that failed, what the diagnostics find, and the changes that they suggest."""

    run: Run
    budget_minutes: Number
    acceptance: list[Acceptance]
    waiting: Waiting
    diagnostics: list[Diagnosis] | None = None
    changes: list[Change] | None = None
