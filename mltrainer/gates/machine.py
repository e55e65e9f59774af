"""The state machine: each phase's state, derived from the gates; nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass

from mltrainer.errors import InputError
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.workspace import LOCK_FILE, PHASES, Project, is_locked, read_json

RUNNING_FILE = "running.json"
SENT_BACK = ("recommendation_given", "source_committed")  # items that nothing but another planning can mend


@dataclass(frozen=True)
class PhaseState:
    """Where one phase stands.

    Attributes:
        name: The phase.
        state: locked, ready, running, failed, passed, skipped or stale.
        reasons: Why, each with what to do.
        gate: Its gate.
    """

    name: str
    state: str
    reasons: tuple[str, ...]
    gate: Gate

    @property
    def done(self) -> bool:
        """Whether the next phase may run."""
        return self.state in ("passed", "skipped")


def derive(project: Project, demand_files: bool = False) -> list[PhaseState]:
    """Return every phase's state, in order."""
    running = running_phase(project)
    states: list[PhaseState] = []
    for gate in check_gates(project, demand_files):
        before = states[-1] if states else None
        states.append(_state(gate, before, running))
    return states


def _state(gate: Gate, before: PhaseState | None, running: str | None) -> PhaseState:
    if running == gate.phase:
        return PhaseState(gate.phase, "running", ("it runs now",), gate)
    if gate.record is None:
        if before is None or before.done:
            return PhaseState(gate.phase, "ready", (), gate)
        return PhaseState(gate.phase, "locked", (f"the gate before it, {before.name}, does not hold",), gate)
    if gate.stale:
        return PhaseState(gate.phase, "stale", gate.stale, gate)
    if gate.failing:
        return PhaseState(gate.phase, "failed", tuple(f"{item.id}: {item.statement}" for item in gate.failing), gate)
    return PhaseState(gate.phase, "skipped" if gate.skipped else "passed", (), gate)


def running_phase(project: Project) -> str | None:
    """Return the phase that a live process works on now."""
    if not is_locked(project.state_dir / LOCK_FILE):
        return None
    try:
        return str(read_json(project.state_dir / RUNNING_FILE)["phase"])
    except (InputError, KeyError, TypeError):  # gone, or half written: then the phase is not known
        return None


def next_phase(states: list[PhaseState]) -> str | None:
    """Return the phase to run next, or None when all are done.

    A diagnosis that recommends `debug` sends the project back to planning; so does code that planning found uncommitted.
    """
    for state in states:
        if state.done:
            continue
        sent_back = state.state == "failed" and any(item.id in SENT_BACK for item in state.gate.failing)
        return PHASES[0] if sent_back else state.name
    return None


def next_command(states: list[PhaseState]) -> str | None:
    """Return what to do next, a command or what mends the item that fails; None when all is done."""
    state = next((state for state in states if not state.done), None)
    if state is not None and state.state == "failed" and state.gate.failing[0].mend:
        return state.gate.failing[0].mend  # running the phase again would only fail again
    phase = next_phase(states)
    return f"mltrainer phase run {phase}" if phase else None
