"""The baseline's evidence: the run, and how it stands to criterion and budget."""

from mltrainer.records.common import Acceptance, Measured, Number, Part
from mltrainer.records.run import Run


class Waiting(Part):
    """The usual share of time that steps waited for data, the largest that is allowed, and whether it was more."""

    share: Measured
    limit: Number
    starved: bool


class Baseline(Part):
    """The run of the planned config."""

    run: Run
    budget_minutes: Number
    acceptance: list[Acceptance]
    waiting: Waiting
