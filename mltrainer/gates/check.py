"""Checks of a gate's items: pure functions from a validated record to a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mltrainer.records.common import Part

RUN_PLANNING = "mltrainer phase run planning"
RUN_DIAGNOSTICS = "mltrainer phase run diagnostics"
RUN_OPTIMIZATION = "mltrainer phase run optimization"
RUN_FINALIZATION = "mltrainer phase run finalization"


@dataclass(frozen=True)
class Outcome:
    """A verdict and the evidence that it was computed from.

    Attributes:
        verdict: "pass", "fail" or "not_applicable".
        evidence: The measured values beside the verdict.
        hint: The command or change that fixes a failure.
    """

    verdict: str
    evidence: dict[str, Any] = field(default_factory=dict)
    hint: str | None = None


@dataclass(frozen=True)
class Check:
    """A check, and the kinds of evidence that it can judge: `function(record)`, or `function(record, settings)` of the item."""

    function: Callable[..., Outcome]
    evidence: tuple[type[Part], ...]


CHECKS: dict[str, Check] = {}  # by the item's id
Function = TypeVar("Function", bound=Callable[..., Outcome])


def check(*evidence: type[Part], item: str | None = None) -> Callable[[Function], Function]:
    """Make a function the check of the item of its name, or of the one that is named.

    Args:
        evidence: The types of a record's evidence that the check can judge.
        item: The item's id, where it is not the function's name.
    """

    def register(function: Function) -> Function:
        CHECKS[item or function.__name__] = Check(function, evidence)
        return function

    return register


def when(holds: bool, evidence: dict[str, Any], hint: str) -> Outcome:
    """Return "pass", or "fail" with its fix."""
    return Outcome("pass", evidence) if holds else Outcome("fail", evidence, hint)


def recorded(part: Part | None) -> dict[str, Any] | None:
    """Return a part of a record in the form of the record's file."""
    return None if part is None else part.written()
