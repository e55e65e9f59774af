"""What a range test is asked, measures and finds."""

from __future__ import annotations

from mltrainer.questions.findings import Explored, Findings, Value


class Asked(Findings):
    """How many steps, at rates from `low` to `high`."""

    steps: int
    low: Value
    high: Value


class RangeTest(Findings):
    """The curve of a range test, and the learning rate that it suggests.

    Attributes:
        rates: Rising, one per step.
        losses: Of each step.
        smoothed: The same, smoothed.
        stopped: Whether the loss diverged.
        suggestion: A learning rate, or None.
        reason: Why this one, or why none.
    """

    rates: list[Value]
    losses: list[Value]
    smoothed: list[Value]
    stopped: bool
    suggestion: Value | None
    reason: str


class FoundRate(RangeTest, Explored):
    """A range test beside the present rate, with the command that adopts the suggestion, and the path of its figure."""

    present: Value
    command: str | None
    figure: str
