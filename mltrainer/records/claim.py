"""A claim: what a person expects the search's config to reach over the baseline, written before anything is measured."""

from typing import Literal

from mltrainer.records.common import Measured, Number, Part
from mltrainer.records.equations import Between, Equal, not_negative
from mltrainer.workspace import seal

RULE: Literal["exact sign-flip test"] = "exact sign-flip test"
UNDECIDED: Literal["undecided"] = "undecided"
Verdict = Literal["holds", "does not hold", "undecided"]


class Claim(Part):
    """A claim, as `claim.json` holds it.

    Attributes:
        hypothesis: The claim in words.
        metric: The metric on validation.
        mode: Whether larger or smaller values of it are better.
        least: The least mean improvement of the compared config over the baseline.
        seeds: The least number of seeds of both.
        rule: The test of the improvements, one for each seed, against `least`.
        level: The level of the test.
        seal: The digest of all this.
    """

    hypothesis: str
    metric: str
    mode: Literal["max", "min"]
    least: Number
    seeds: int
    rule: Literal["exact sign-flip test"]
    level: Number
    seal: str

    equations = (
        *not_negative("least"),
        Between("seeds", 1, 20),
        Between("level", 0, 0.5),
        Equal("seal", lambda claim: seal(claim.written())["seal"]),
    )


class PlannedClaim(Part):
    """A claim that planning bound, and the numbers that were known before it.

    Attributes:
        claim: The claim.
        known: In words, the runs that were begun without it; empty for a claim that was fixed beforehand.
        before: The claim that it replaced after numbers were known; None where it replaced none.
        removed: Whether its file was removed after numbers were known.
    """

    claim: Claim
    known: list[str]
    before: Claim | None = None
    removed: bool = False

    @property
    def hypothesis(self) -> str | None:
        """What is to be compared with the baseline; None where the claim was removed."""
        return None if self.removed else self.claim.hypothesis


class ClaimAnswer(Part):
    """The answer to a claim, which follows from the records.

    Attributes:
        claim: The claim; None where only the baseline's run names it.
        verdict: Whether it holds.
        why: Why it is undecided; None where it is not.
        seeds: The number of seeds that were compared.
        difference: The mean improvement over the baseline; None where nothing was compared.
        level: The level of the test, of which each comparison with the same baseline spends a part; None in the same case.
        rows: The 95 % interval of the improvement by the number of validation rows; None where the metric is no share of rows.
        delivered: The improvement of the delivered model over the baseline on validation, one seed each; None before that.
    """

    claim: Claim | None
    verdict: Verdict
    why: str | None
    seeds: int = 0
    difference: Measured | None = None
    level: Number | None = None
    rows: list[Measured] | None = None
    delivered: Measured | None = None
