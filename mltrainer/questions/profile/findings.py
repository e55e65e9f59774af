"""What a profile is asked, measures and finds."""

from __future__ import annotations

from mltrainer.questions.findings import Explored, Findings, Value


class Asked(Findings):
    """How many steps are timed."""

    steps: int


class Section(Findings):
    """A section of a step: its median time in microseconds, and its share of all the time."""

    name: str
    us: Value
    share: Value


class Operator(Section):
    """An operator: its own time and its number of calls, per traced step."""

    calls: Value


class Profile(Findings):
    """Where a step's time goes.

    Attributes:
        steps: How many were timed.
        step_us: The median step, in microseconds.
        sections: The parts of a step.
        operators: The most expensive ones.
        traced_steps: How many were traced.
        host_waits: How often the host waited for the device, by the function that waited; None on a CPU.
    """

    steps: int
    step_us: Value
    sections: list[Section]
    operators: list[Operator]
    traced_steps: int
    host_waits: dict[str, int] | None


class FoundProfile(Profile, Explored):
    """A profile with the path of its trace."""

    trace: str
