"""Custom checks, called again and compared with their recorded verdicts: `gate check --custom-checks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mltrainer.configs.pages import Item
from mltrainer.gates.check import Outcome
from mltrainer.gates.custom import call, recorded_outcome
from mltrainer.gates.gate import Gate, GateItem
from mltrainer.gates.policy import policy_of
from mltrainer.records.reading import Record
from mltrainer.workspace import Project


def with_custom_checks(project: Project, gates: Sequence[Gate], isolated: bool) -> list[Gate]:
    """Return gates in which each custom check was called again; a gate with another verdict now does not hold.

    Args:
        project: The project, whose code is run.
        gates: Its gates.
        isolated: Whether the functions are closed off from the machine.
    """
    return [_again(project, gate, isolated) if gate.not_recomputed else gate for gate in gates]


def _again(project: Project, gate: Gate, isolated: bool) -> Gate:
    assert gate.record is not None  # as it has items
    page = policy_of(project, gate.record.trusted).page
    named = {item.id: item for item in page.items if item.check}
    items = [_compared(project, gate.record, item, named[item.id], isolated) if item.id in named else item for item in gate.items]
    return replace(gate, items=tuple(items))


def _compared(project: Project, record: Record, shown: GateItem, item: Item, isolated: bool) -> GateItem:
    phase, recorded = record.trusted.phase, recorded_outcome(item, record.trusted)
    outcome, _ = call(item, phase, record.evidence, project.root, isolated)
    shown = replace(shown, statement=shown.statement.replace("not recomputed here", "run again here"))
    if (recorded.verdict, recorded.evidence) == (outcome.verdict, outcome.evidence):
        return replace(shown, recomputed=True)
    evidence = {"recorded": _verdict(recorded), "now": _verdict(outcome)}
    return replace(shown, verdict="fail", evidence=evidence, mend=f"mltrainer phase run {phase}", recomputed=True)


def _verdict(outcome: Outcome) -> dict[str, Any]:
    return {"verdict": outcome.verdict, "evidence": outcome.evidence}
