"""The state machine: each phase's state, derived from the gates; nothing is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mltrainer.errors import InputError
from mltrainer.follow.live import running_study, study_text
from mltrainer.gates.digests import FileDigests
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.reports.values import measured
from mltrainer.workspace import LOCK_FILE, PHASES, RUNNING_FILE, Project, is_locked, read_json

RUN = "mltrainer phase run "
SENT_BACK = ("recommendation_given", "source_committed", "inputs_planned")  # items that nothing but another planning can fix
DECISIONS = (  # items that fail again until a person changes something, or waives them
    "recommendation_given",
    "improvement_validated",
    "final_run_diagnosed",
    "test_opened_once",
    "acceptance_met",
)


@dataclass(frozen=True)
class PhaseState:
    """The state of one phase.

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


def derive(project: Project, demand_files: bool = False, known: FileDigests | None = None) -> list[PhaseState]:
    """Return every phase's state, in order; see `check_gates`."""
    running = running_phase(project)
    states: list[PhaseState] = []
    for gate in check_gates(project, demand_files, known):
        before = states[-1] if states else None
        states.append(_running(project, gate) if running == gate.phase else _state(gate, before))
    return states


def asked(states: Sequence[PhaseState], phase: str | None = None) -> list[PhaseState]:
    """Return the phases whose gates are checked: the named one, else planning and all with records or reports."""
    return [s for s in states if (s.name == phase if phase else s.gate.is_there or s.name == PHASES[0])]


def _running(project: Project, gate: Gate) -> PhaseState:
    """Return the state of a phase that a live process works on; for a search, with its progress."""
    study = running_study(project.state_dir, project.state_dir / RUNNING_FILE) if gate.phase == "optimization" else None
    return PhaseState(gate.phase, "running", (f"it runs now: {study_text(study)}" if study else "it runs now",), gate)


def _state(gate: Gate, before: PhaseState | None) -> PhaseState:
    if gate.record is None:
        if before is None or before.done:
            return PhaseState(gate.phase, "ready", (), gate)
        return PhaseState(gate.phase, "locked", (f"the gate before it, {before.name}, does not hold",), gate)
    # Before the failures: verdicts of a stale record are about a state that no longer exists.
    if gate.stale:
        return PhaseState(gate.phase, "stale", gate.stale, gate)
    if gate.failing:
        return PhaseState(gate.phase, "failed", tuple(f"{item.id}: {item.statement}" for item in gate.failing), gate)
    return PhaseState(gate.phase, "skipped" if gate.skipped else "passed", (), gate)


def running_phase(project: Project) -> str | None:
    """Return the phase that a live process works on now."""
    # A killed process leaves its file behind, but not the lock, which the kernel frees: the lock is asked first.
    if not is_locked(project.state_dir / LOCK_FILE):
        return None
    try:
        return str(read_json(project.state_dir / RUNNING_FILE)["phase"])
    except (InputError, KeyError, TypeError):  # gone, or half written: then the phase is not known
        return None


@dataclass(frozen=True)
class Advice:
    """The next step.

    Attributes:
        phase: The phase to run next.
        command: The command to type; None if a person must first do something that is no command.
        why: The whole advice in words, with every way on.
        reason: The fact that the advice follows from.
        asks: Whether a person must decide or change something, since a repetition would have the same result.
    """

    phase: str
    command: str | None
    why: str
    reason: str
    asks: bool = False

    @property
    def explained(self) -> str:
        """The reason, and the advice where it is more than the command."""
        return self.reason if self.why == self.command else f"{self.reason}; {self.why}"

    @property
    def waits_for_another(self) -> bool:
        """Whether another process works on the phase now."""
        return self.command is None and not self.asks

    def is_after(self, until: str | None) -> bool:
        """Return True if the step's phase comes after the one that a walk is to end with; None is the last."""
        return until is not None and PHASES.index(self.phase) > PHASES.index(until)

    def ends_walk(self, until: str | None) -> bool:
        """Return True if a walk to a phase ends before this step: a person must decide first, or it is not asked for."""
        return (self.asks and until != self.phase) or self.is_after(until)


def advice(states: Sequence[PhaseState]) -> Advice | None:
    """Return the next step of the first phase that is not done, or None when all are done."""
    state = next((state for state in states if not state.done), None)
    if state is None:
        return None
    if state.state == "failed":
        return _after_failure(state)
    if state.state == "running":
        return Advice(state.name, None, "wait until it ends", f"{state.name} runs now")
    if state.name == "optimization" and state.state == "ready" and (why := _no_criterion(states)):
        return Advice(state.name, None, why, "whether to search for a better config is not decided", asks=True)
    if state.name == "optimization" and state.state == "ready" and _may_deploy(states):
        why = "every acceptance criterion is met: optimization is skipped on the record, and finalization follows"
        return Advice(state.name, "mltrainer run", "mltrainer run", why)
    if state.state == "stale" and (without_rerun := _without_rerun(state)):
        return without_rerun
    reason = next(iter(state.reasons), f"{state.name} has not run yet")
    phase = _named(reason, state.name)
    return Advice(phase, f"{RUN}{phase}", f"{RUN}{phase}", reason)


def _may_deploy(states: Sequence[PhaseState]) -> bool:
    """Return True if diagnostics recommends to deploy the baseline, so no search is needed."""
    record = states[PHASES.index("diagnostics")].gate.content
    return record is not None and record.evidence.recommendation == "deploy" and record.evidence.claim is None


def _after_failure(state: PhaseState) -> Advice:
    """Return the fix of a phase's first failing item; running the phase again would only fail again."""
    first, items = state.gate.first_failing, {item.id for item in state.gate.failing}
    hint = first.mend or f"mltrainer phase run {state.name}"
    asks = bool(items & set(DECISIONS)) or _has_finding(state.gate)
    phase = PHASES[0] if items & set(SENT_BACK) or _has_finding(state.gate) else state.name if asks else _named(hint, state.name)
    command = hint.partition("; or ")[0] if hint.startswith("mltrainer ") else None
    return Advice(phase, command, hint, f"{first.id} of {state.name} does not hold", asks)


def _named(hint: str, phase: str) -> str:
    """Return the phase that a next step names, such as an earlier one; the phase itself if it names none."""
    match = re.search(rf"{RUN}({'|'.join(PHASES)})\b", hint)
    return match[1] if match else phase


def _without_rerun(state: PhaseState) -> Advice | None:
    """Return the next step for a stale phase that no rerun makes current, such as one with damaged waivers."""
    for reason in state.reasons:
        why, _, to_do = reason.rpartition("; next: ")
        if why and RUN not in to_do:
            return Advice(state.name, None, to_do, why, asks=True)
    return None


def _has_finding(gate: Gate) -> bool:
    """Return True if a failed baseline was diagnosed: only a change of its config, or of data or code, can fix it."""
    return gate.phase == "baseline" and gate.content is not None and bool(gate.content.evidence.changes)


def _no_criterion(states: Sequence[PhaseState]) -> str | None:
    """Return the decision to ask for while no acceptance criterion is set; None if one is, or nothing is diagnosed yet."""
    planning, baseline, diagnosis = (state.gate.content for state in states[: PHASES.index("optimization")])
    if planning is None or baseline is None or diagnosis is None or diagnosis.evidence.acceptance:
        return None
    metric = baseline.evidence.run.metric
    reached = (baseline.evidence.folds or baseline.evidence.run).metrics.get(metric.name)
    criterion = f'{metric.name}: "{">=" if metric.mode == "max" else "<="} ..."'
    why = (
        f"no acceptance criterion is set (the baseline reached {metric.name} {measured(reached)} on validation): name one in "
        f"mltrainer.yaml, such as acceptance: {{{criterion}}}, then mltrainer run"
    )
    task = planning.evidence.config["task"]
    if task.get("script") and not task.get("arguments"):  # a search has nothing to vary
        return why
    return f"{why}; or search for a better config all the same: mltrainer phase run optimization"
