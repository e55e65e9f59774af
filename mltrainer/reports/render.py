"""The reports of a phase, from its record alone: identical records give identical bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mltrainer.errors import InputError
from mltrainer.reports import baseline, diagnostics, finalization, optimization, planning
from mltrainer.reports.model_card import model_card as model_card
from mltrainer.reports.sections import GateView, Record, Waivers

_PHASES: dict[str, Callable[[Record, Waivers, GateView], dict[str, str]]] = {
    "planning": planning.render,
    "baseline": baseline.render,
    "diagnostics": diagnostics.render,
    "optimization": optimization.render,
    "finalization": finalization.render,
}
_WRONG_SHAPE = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)


def render(record: dict[str, Any], waivers: list[dict[str, Any]], gate: list[dict[str, Any]]) -> dict[str, str]:
    """Return the Markdown and SVG files of a phase's folder, by file name.

    Args:
        record: The phase's record.
        waivers: Each with `item`, `reason`, `by` and, where it is known, `when`.
        gate: Each item of the checklist: `id`, `statement`, `verdict`, `evidence` and `mend`.

    Raises:
        InputError: The record is of no phase, or its evidence lacks what the report is made from.
    """
    phase = record.get("phase")
    if not isinstance(phase, str) or phase not in _PHASES:
        raise InputError(f"{phase!r} is no phase; expected one of {', '.join(_PHASES)}", where="record.json")
    try:
        return _PHASES[phase](record, waivers, gate)
    except _WRONG_SHAPE as error:
        message = f"the record of {phase} lacks what its report is made from: {type(error).__name__} {error}"
        raise InputError(message, where="record.json", mend=f"mltrainer phase run {phase}") from error
