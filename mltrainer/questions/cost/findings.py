"""What a training and its answers cost: hours, and money in the currency of each offer's page."""

from __future__ import annotations

from mltrainer.questions.findings import Findings, Value


class Range(Findings):
    """From `low` to `high`."""

    low: Value
    high: Value

    def times(self, factor: Range) -> Range:
        """Return the range of products with another one; neither is below 0."""
        return Range(low=self.low * factor.low, high=self.high * factor.high)


class PhaseCost(Findings):
    """A phase's hours and money on an offer; None where they are not known."""

    phase: str
    hours: Range | None
    money: Range | None


class Source(Findings):
    """A figure of a page of prices: its name, its value, where it was read, and when."""

    figure: str
    value: Value
    source: str
    read: str


class OfferCost(Findings):
    """What an offer of a page of prices would take.

    Attributes:
        offer: The platform, with its own name of the offer.
        device: As the page says.
        page: The page of prices.
        currency: Of all its money.
        per_hour: What an hour costs, electricity with it; None where the page leaves it blank.
        minimum_s: The shortest time that is billed; None where it is blank, and on a machine of one's own.
        training_h: Hours of one training of the config.
        training_from: Where they come from.
        phases: One after the other.
        total: All of them.
        per_second: Answers that the device was said to give in a second.
        per_thousand: What so many answers cost at that rate.
        per_million: Likewise.
        not_known: What could not be told, each with its reason.
        sources: The figures of the page that it counts with.
    """

    offer: str
    device: str
    page: str
    currency: str
    per_hour: Value | None
    minimum_s: Value | None
    training_h: Range | None
    training_from: str | None
    phases: list[PhaseCost]
    total: PhaseCost
    per_second: Value | None
    per_thousand: Value | None
    per_million: Value | None
    not_known: list[str]
    sources: list[Source]


class FoundCost(Findings):
    """The cost of a config's phases and answers, by offer.

    Attributes:
        date: The day that the ages of prices are counted to.
        epochs: Of one training; None: a program that trains by itself has none that are known.
        trainings: By phase, how many such trainings it is worth.
        offers: In the order of their pages.
        deadline_h: Within which all phases shall end; None: none was given.
        cheapest: The offer to take; None without a deadline, or where none is known to meet it.
        reason: Why.
        assumptions: What the figures leave out or take for granted.
        stale: Pages whose prices are old.
    """

    date: str
    epochs: int | None
    trainings: dict[str, Range]
    offers: list[OfferCost]
    deadline_h: Value | None
    cheapest: str | None
    reason: str | None
    assumptions: list[str]
    stale: list[str]
