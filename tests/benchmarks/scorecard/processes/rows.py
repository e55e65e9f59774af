"""The rows on numbers of processes, and their verdicts: pure functions of what came of the runs."""

from __future__ import annotations

from typing import Protocol

from tests.benchmarks.scorecard.processes.case import UNEVEN, Case, Outcome
from tests.benchmarks.scorecard.rows import Cell, Row, crash, identical, percent, relative_error

KILLED_AT = 20  # in the third epoch, after the checkpoint of step 16
SAVED_AT = 16
ALL = (1, 2, 4)


class Unmeasured(Exception):
    """A run that was not what its row asks for, so that its weights say nothing."""


class Runs(Protocol):
    """Where a row's runs come from; the same run is not trained twice unless `number` differs.

    Attributes:
        buckets: There are buckets, whose size can be chosen.
    """

    buckets: bool

    def fresh(self, case: Case, number: int = 1) -> Outcome:
        """Return the outcome of a run from its start."""

    def resumed(self, case: Case, processes: int) -> Outcome:
        """Return the outcome of a run of which one process was killed, and which another number of processes went on with."""


# --- verdicts -----------------------------------------------------------------------------------


def agree(reference: Outcome, *others: Outcome) -> Cell:
    """Judge runs that must end in the reference's bits; the largest differences of weights and of the loss are told."""
    for outcome in (reference, *others):
        if outcome.weights is None:
            return crash(outcome)
    differing = [other for other in others if not identical(reference.weights, other.weights)]
    if not differing:
        return Cell("same bits", "pass")
    weights = max(relative_error(reference.weights, other.weights) for other in differing)
    loss = max(abs(other.loss - reference.loss) / reference.loss for other in differing)
    return Cell(f"differs (weights {percent(weights)}, loss {percent(loss)})", "fail")


def witnessed(outcome: Outcome, case: Case, resumed: bool) -> Outcome:
    """Return a run that reached its end in as many processes and steps as were asked for; one that failed, as it is.

    Raises:
        Unmeasured: Another number of processes took its steps, or each took another number of steps.
    """
    asked = (case.steps - SAVED_AT if resumed else case.steps,) * case.processes
    if outcome.weights is not None and outcome.taken != asked:
        raise Unmeasured(f"{outcome.taken} steps instead of {asked}")
    return outcome


# --- the rows -----------------------------------------------------------------------------------

DROPOUT, NONE = Case().dropout, 0.0


def _by_all(dropout: float, samples: int = Case().samples) -> Row[Runs]:
    what = "1, 2 and 4 processes" + (", an epoch's last step smaller" if samples == UNEVEN else "")

    def judge(runs: Runs) -> Cell:
        return agree(*(runs.fresh(Case(count, dropout, samples)) for count in ALL))

    return Row(_titled(what, dropout), judge)


def _other_buckets(runs: Runs) -> Cell:
    if not runs.buckets:
        return Cell("has none", "unasked")
    return agree(runs.fresh(Case(4, NONE)), runs.fresh(Case(4, NONE, small=True)))


def _killed(what: str, dropout: float, *counts: int) -> Row[Runs]:
    def judge(runs: Runs) -> Cell:
        return agree(runs.fresh(Case(4, dropout)), *(runs.resumed(Case(4, dropout), count) for count in counts))

    return Row(_titled(f"one of 4 killed (`kill -9`), resumed on {what}", dropout), judge)


def _titled(what: str, dropout: float) -> str:
    return what if dropout else f"{what}; no dropout"


ROWS: list[Row[Runs]] = [
    Row("4 processes, repeated", lambda runs: agree(runs.fresh(Case(4)), runs.fresh(Case(4), number=2))),
    _by_all(DROPOUT),
    _by_all(NONE),
    _by_all(DROPOUT, UNEVEN),
    _by_all(NONE, UNEVEN),
    Row("4 processes, other buckets; no dropout", _other_buckets),
    _killed("4", DROPOUT, 4),
    _killed("2 and on 1", DROPOUT, 2, 1),
    _killed("2 and on 1", NONE, 2, 1),
]
