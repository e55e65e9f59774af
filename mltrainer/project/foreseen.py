"""The phases that `mltrainer run` would run, and the place where it would stop, by the project's state alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mltrainer.configs.project import load_project
from mltrainer.gates.machine import Advice, PhaseState, advice, derive
from mltrainer.workspace import PHASES, Project

SEARCH = "optimization"


@dataclass(frozen=True)
class Step:
    """A phase that would run.

    Attributes:
        name: The phase.
        state: Its state now.
        why: Why it would run; for a phase behind another one, on what condition.
        reasons: Why it is in this state.
    """

    name: str
    state: str
    why: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """The phase before which a walk would stop, although every gate holds, and why."""

    phase: str
    why: str


@dataclass(frozen=True)
class Foreseen:
    """What a walk would do.

    Attributes:
        steps: The phases that would run, in order; each ends the walk if its gate does not hold.
        stop: Where it would stop all the same; None if it would reach its end.
        advice: The next step now; None if all five gates hold.
    """

    steps: tuple[Step, ...]
    stop: Stop | None
    advice: Advice | None


def foresee(project: Project, until: str | None) -> Foreseen:
    """Return the phases that a walk would run, and its stop; nothing is run or written.

    Args:
        project: The project.
        until: The phase after which the walk is to stop; None: the last.

    Raises:
        InputError: The project's file is not valid.
    """
    config, states = load_project(project.file), derive(project)
    step = advice(states)
    if step is None:
        return Foreseen((), None, None)
    if step.ends_walk(until) or step.waits_for_another:
        return Foreseen((), None if step.is_after(until) else Stop(step.phase, step.explained), step)
    first, last = PHASES.index(step.phase), PHASES.index(until or PHASES[-1])
    asks = not config.acceptance and first < PHASES.index(SEARCH) <= last and until != SEARCH
    steps = _steps(states[first : PHASES.index(SEARCH) if asks else last + 1], step)
    why = "no acceptance criterion is set, so a person must decide whether to search: name one in mltrainer.yaml"
    return Foreseen(steps, Stop(SEARCH, why) if asks else None, step)


def _steps(states: Sequence[PhaseState], step: Advice) -> tuple[Step, ...]:
    first = states[0]
    behind = (Step(one.name, one.state, _condition(one, before.name), one.reasons) for before, one in pairwise(states))
    return (Step(first.name, first.state, step.explained, first.reasons), *behind)


def _condition(state: PhaseState, before: str) -> str:
    return f"if the gate of {before} holds{' and its record is another one then' if state.done else ''}"
