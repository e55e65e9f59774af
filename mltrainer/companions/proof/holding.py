"""What proof begins with: gates that hold."""

from __future__ import annotations

from mltrainer.gates.gate import check_gates, closed
from mltrainer.workspace import PHASES, Project


def require_gates(project: Project, until: str = PHASES[0]) -> None:
    """Require that every gate that there is holds, and all up to a phase.

    Raises:
        GateError: One does not.
    """
    for place, gate in enumerate(check_gates(project)):
        if not gate.holds and (gate.is_there or place <= PHASES.index(until)):
            raise closed(gate, "nothing was written", f"mltrainer gate check {gate.phase}")
