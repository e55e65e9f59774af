"""Runs phases: refuses if the gate before does not hold, then prepare, run, record, render, gate - the gate last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer import handbook, plugins
from mltrainer.configs.pages import (
    phase_page,
    policy_changes,
    policy_digest,
    shipped_page,
    tool_pages,
    tool_path,
    trained_by,
)
from mltrainer.configs.project import TrainingConfig, load_project, load_training
from mltrainer.configs.tracking import Tracking
from mltrainer.errors import InputError, MltrainerError
from mltrainer.executors.sandbox import unavailable
from mltrainer.figures.content import Figure
from mltrainer.figures.drawn import draw
from mltrainer.figures.drawn import rows as figure_rows
from mltrainer.gates.custom import judge
from mltrainer.gates.gate import (
    Gate,
    artifacts,
    check_gates,
    digests_of,
    evaluate,
    gates_before,
    read_waivers,
    statement,
    subjects_of,
)
from mltrainer.gates.machine import advice, derive
from mltrainer.gates.policy import policy_of
from mltrainer.gates.verdicts import read_verdict
from mltrainer.phases import baseline, diagnostics, finalization, optimization, planning
from mltrainer.phases.context import Context, Result
from mltrainer.phases.planning import CONFIG_FILE
from mltrainer.records.envelope import Waiver, parsed
from mltrainer.records.layout import record_json
from mltrainer.records.reading import GATE_FILE, RECORD_FILE, SCHEMA, WAIVERS_FILE, Record, read_record, sound_record
from mltrainer.records.trial_table import FIRST, LAST, divided
from mltrainer.records.tried import ends
from mltrainer.redaction import redacted
from mltrainer.reports.changes import since
from mltrainer.reports.render import template_paths
from mltrainer.reports.values import duration
from mltrainer.reproducibility.git import committed_file
from mltrainer.runs.launcher import Tools
from mltrainer.runs.recorded import keep_out_of_git
from mltrainer.runs.tried import note_tried
from mltrainer.workspace import (
    PHASES,
    RUNNING_FILE,
    Project,
    from_json,
    locked_project,
    plain,
    seal,
    sha256_file,
    write_atomic,
    write_json,
)

RUN: dict[str, Callable[[Context], Result]] = {
    "planning": planning.run,
    "baseline": baseline.run,
    "diagnostics": diagnostics.run,
    "optimization": optimization.run,
    "finalization": finalization.run,
}


PLAN = "mltrainer phase run planning"


def run_phase(tools: Tools, phase: str, assignments: tuple[str, ...], template: str | None = None) -> Gate:
    """Run one phase and return its gate, recomputed from the written files.

    Args:
        tools: The project's tools.
        phase: The phase.
        assignments: Changes of the config. The baseline's are planning's, which runs first then; if its gate does not hold,
            that gate is returned.
        template: The template that planning starts from.

    Raises:
        GateError: The gate before it does not hold; the item and the fixing command are named.
        InUseError: Another process works on the project.
        MltrainerError: The phase failed; nothing is half-written.
    """
    _refuse_what_is_plannings(phase, assignments, template)
    if phase == "baseline" and (assignments or template):
        tools.note("the baseline's config is planning's: planning runs again first")
        # Not under the lock: planning takes it for itself, and would find it taken by this very process.
        planned = run_phase(tools, "planning", assignments, template)
        return run_phase(tools, phase, ()) if planned.holds else planned
    project = tools.project
    with locked_project(project):
        keep_out_of_git(project)
        write_json(project.state_dir / RUNNING_FILE, {"phase": phase, "pid": os.getpid()})
        try:
            return _run_locked(tools, phase, assignments, template)
        finally:
            (project.state_dir / RUNNING_FILE).unlink(missing_ok=True)


def _refuse_what_is_plannings(phase: str, assignments: tuple[str, ...], template: str | None) -> None:
    """Refuse changes of a config that was decided before the phase.

    Raises:
        InputError: The changes belong to another phase; the message names it.
    """
    if assignments and phase == "diagnostics":
        raise InputError("--set does not belong to diagnostics: its run is the baseline's", hint=f"{PLAN} --set KEY=VALUE")
    if template and phase not in ("planning", "baseline"):
        raise InputError(f"--template does not belong to {phase}: planning starts from it", hint=f"{PLAN} --template {template}")


def _refuse_what_is_skipped(phase: str, assignments: tuple[str, ...], earlier: Mapping[str, Record]) -> None:
    """Refuse changes of a search that is skipped, since none would be read.

    Raises:
        InputError: The search is skipped; the hint says how to get one.
    """
    if phase == "optimization" and assignments and optimization.is_skipped(earlier["diagnostics"].trusted.evidence):
        raise InputError(
            "optimization is skipped, because the baseline meets every acceptance criterion: there is no search to change",
            hint=f"mltrainer phase run {phase}, or ask for more in mltrainer.yaml (`acceptance`), then mltrainer run",
        )


def _run_locked(tools: Tools, phase: str, assignments: tuple[str, ...], template: str | None) -> Gate:
    project = tools.project
    # Under the lock: nobody can replace a record between this look and the run that rests on it.
    before = gates_before(project, phase)
    page = phase_page(phase, project.root)
    earlier = {gate.phase: gate.record for gate in before if gate.record}
    _refuse_what_is_skipped(phase, assignments, earlier)
    previous = before[-1].record.sha256 if before and before[-1].record else None
    current = sound_record(project, phase)
    shown_in = _tracking(project, earlier) if earlier else None  # planning has no run: it tries the trackers
    beside, rehearsal = (plugins.part("trackers", name) for name in ("beside", "rehearsal"))
    with beside(project, phase, shown_in, tools.tell) as trackers, rehearsal(project, tools.tell) as tried:
        started = (trackers.tell, tools.launch, template, tried.begin, tools.prepare)
        ctx = Context(project, page, earlier, current, previous, assignments, *started)
        try:
            result = RUN[phase](ctx)
        finally:
            note_tried(project)
        evidence = redacted(plain(result.evidence.written()))  # before figures are drawn of it
        drawn = draw(phase, evidence)
        record = _record(ctx, result, evidence, [row for gate in before for row in _waived(project, gate)], drawn)
        write(project, phase, record, drawn)
    return gate_of(project, phase)


def _tracking(project: Project, earlier: Mapping[str, Record]) -> Tracking | None:
    """Return the trackers that the project file names now, or those that the training config names in their place.

    They look on, so that naming one is no reason to plan again.
    """
    evidence = earlier["planning"].trusted.evidence
    planned, generated = (TrainingConfig.model_validate(config).tracking for config in (evidence.config, evidence.generated))
    path = project.phase_dir("planning") / CONFIG_FILE
    own = load_training(path, project.relative(path)).tracking if path.is_file() else planned
    return own if own != generated else load_project(project.file).tracking


def _waived(project: Project, gate: Gate) -> list[Waiver]:
    """Return an earlier phase's waivers, which every later report shows too."""
    assert gate.record is not None
    waivers, _ = read_waivers(project, gate.phase, gate.record)
    return [waiver.model_copy(update={"item": f"{gate.phase}: {waiver.item}"}) for waiver in waivers]


def _record(ctx: Context, result: Result, evidence: dict[str, Any], waived: list[Waiver], drawn: list[Figure]) -> dict[str, Any]:
    config = load_project(ctx.project.file)
    templates = template_paths(ctx.page.phase).values()
    pages = [f"{ctx.project.relative(ctx.folder)}/workflow.md", *_manifests(ctx), *result.handbook, *templates]
    overridden = {path for path in pages if handbook.locate(path, ctx.project.root)[1]}
    source = result.source.written()
    baseline = ctx.earlier["baseline"].data.get("figures") if "baseline" in ctx.earlier else None
    now = {"phase": ctx.page.phase, "source": source, "evidence": evidence}
    tried = ends(note_tried(ctx.project, openings=True))
    return _checked(
        ctx.page.phase,
        {
            "schema": SCHEMA,
            "mltrainer": mltrainer.__version__,
            "phase": ctx.page.phase,
            "project": {"id": config.id, "name": config.name},
            "previous": ctx.previous,
            "waived_before": [waiver.written() for waiver in waived],
            "inputs": [row.written() for row in result.inputs],
            "policy": ctx.page.model_dump(),
            "handbook": {path: policy_digest(path, ctx.project.root) for path in pages},
            # A set has another order in each process, and equal records must have equal bytes.
            "policy_overrides": sorted(overridden),
            "policy_changes": policy_changes(ctx.page, shipped_page(ctx.page.phase)),
            "source": source,
            "figures": figure_rows(ctx.page.phase, evidence, drawn, baseline),
            "since": since(now, *_earlier_version(ctx)),
            **_custom_verdicts(ctx, evidence),
            **({"tried": tried} if tried else {}),
            "evidence": evidence,
        },
    )


def _custom_verdicts(ctx: Context, evidence: dict[str, Any]) -> dict[str, Any]:
    """Return the verdicts of the project's custom checks, sandboxed where the system can; empty where there are none."""
    checks = sorted({item.check for item in ctx.page.items if item.check})
    if not checks:
        return {}
    reason = unavailable()
    if reason is not None:
        ctx.note(
            f"{', '.join(checks)}: the project's own check runs as you, with your files and the network and without the shell's "
            f"variables, because no process can be closed off here ({reason})"
        )
    return {"custom_checks": judge(ctx.page, evidence, ctx.project.root, isolated=reason is None)}


def _checked(phase: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its seal.

    Raises:
        MltrainerError: A phase handed back what its record cannot hold, which is a fault of ours.
    """
    record = seal(redacted(plain(content)))
    _, holes = parsed(record, phase)
    if holes:
        details = "; ".join(holes[:5])
        raise MltrainerError(f"a fault of mltrainer's own: {phase} has measurements that its record cannot hold: {details}")
    return record


def _earlier_version(ctx: Context) -> tuple[dict[str, Any] | None, str]:
    """Return the phase's record from the last commit, else the one here, and its origin in words."""
    path = ctx.project.relative(ctx.folder / RECORD_FILE)
    committed = committed_file(ctx.project.root, path)
    try:
        content = from_json(committed.content) if committed else None
    except ValueError:
        content = None
    if committed and isinstance(content, dict):
        return content, f"commit {committed.commit[:12]}"
    return ctx.current.written() if ctx.current else None, "the run before, which was not committed"


def _manifests(ctx: Context) -> list[str]:
    """Return the manifests of the tools that a phase runs, and of the one that trained its run."""
    trained = tool_path(trained_by(ctx.page.phase, ctx.project.root, ctx.task.trainer).tool)
    return list(dict.fromkeys([*tool_pages(ctx.page.phase), trained]))


def write(project: Project, phase: str, content: dict[str, Any], figures: Sequence[Figure] = ()) -> None:
    """Write a phase's figures, its record and its reports, and last its gate record."""
    folder = project.phase_dir(phase)
    # Bound files come first, the gate record last: a phase killed in between has files that do not match, and is stale.
    for figure in figures:
        _write_changed(folder / figure.file, figure.content.encode())
    stored = divided(content)
    if stored.table is not None and stored.file is not None:
        _write_changed(folder / stored.file, stored.table)
    write_atomic(folder / RECORD_FILE, record_json(stored.content))
    for path in folder.glob(f"{FIRST}*{LAST}"):
        if path.name != stored.file:
            path.unlink()  # of the record before
    render_phase(project, phase)


def _write_changed(path: Path, data: bytes) -> None:
    # A file that stays the same keeps its times, by which its digest is remembered.
    if not path.is_file() or path.read_bytes() != data:
        write_atomic(path, data)


def render_phase(project: Project, phase: str) -> None:
    """Render a phase's reports from its record and its waivers, and bind them in the gate record."""
    folder = project.phase_dir(phase)
    record = read_record(project, phase)
    if record is None or record.typed is None:
        raise InputError(f"{phase} has no sound record", hint=f"mltrainer phase run {phase}")
    waivers, _ = read_waivers(project, phase, record)
    items = evaluate(record.typed, policy_of(project, record.typed).page, waivers, project.root)
    rendered = artifacts(project, record, waivers, items, read_verdict(project, phase, record)[0])
    for name, data in sorted(rendered.items()):
        _write_changed(folder / name, data)
    # Before the gate record is replaced: only the old one shows which figures were drawn and not edited since.
    _remove_left_over(project, folder, {row.file for row in record.trusted.figures})
    write_atomic(folder / GATE_FILE, statement(project, record, digests_of(rendered)))


def _remove_left_over(project: Project, folder: Path, bound: set[str]) -> None:
    """Remove the figures of an earlier record that this one does not bind; files that a person changed stay."""
    before = subjects_of(folder / GATE_FILE) or {}
    for path in sorted(folder.glob("*.svg")):
        if path.name not in bound and path.is_file() and before.get(project.relative(path)) == sha256_file(path):
            path.unlink()


def gate_of(project: Project, phase: str) -> Gate:
    """Return a phase's gate, recomputed."""
    return check_gates(project)[PHASES.index(phase)]


def waive(project: Project, phase: str, item: str, reason: str, by: str) -> Gate:
    """Record a person's waiver of a failing item, in the artifact too, and return the gate.

    Raises:
        InputError: There is no such item, it may not be waived, it does not fail, or no reason is given.
    """
    record = read_record(project, phase)
    page = policy_of(project, record.typed).page if record and record.typed else phase_page(phase, project.root)
    known = {i.id: i for i in page.items}
    if item not in known:
        raise InputError.unknown("item", item, known, of=f"of {phase}", hint=f"mltrainer gate check {phase}")
    if not known[item].waivable:
        raise InputError(f"{item} cannot be waived", hint="fix its cause: mltrainer gate check " + phase)
    if not reason.strip():
        raise InputError("a waiver needs a reason", hint='--reason "why it may pass"')
    with locked_project(project):
        # Looked at again under the lock: a phase may have run meanwhile, and a waiver counts for one record.
        gate = gate_of(project, phase)
        waivers = read_waivers(project, phase, gate.record)[0] if gate.record is not None else ()
        if any((waiver.item, waiver.reason) == (item, reason.strip()) for waiver in waivers):
            render_phase(project, phase)  # the same command may have been killed before it wrote the reports
            return gate_of(project, phase)
        if gate.record is None or gate.record.faults or item not in {i.id for i in gate.failing}:
            raise InputError(f"{item} does not fail now, so there is nothing to waive", hint=f"mltrainer gate check {phase}")
        if gate.stale:  # what is failing now is about a state that no longer exists
            raise InputError(f"{phase} is stale: {gate.stale[0]}")
        when = datetime.now(UTC).date().isoformat()
        given = Waiver(item=item, reason=reason.strip(), by=by, when=when, record=gate.record.sha256)
        # Before the reports, which show it: killed in between, they are stale, and no report shows a waiver that is not there.
        write_json(project.phase_dir(phase) / WAIVERS_FILE, {"waivers": [waiver.written() for waiver in (*waivers, given)]})
        render_phase(project, phase)
    return gate_of(project, phase)


def walk(tools: Tools, until: str | None) -> list[Gate]:
    """Run phase after phase from the project's state; stop where a person must decide.

    Returns:
        The gates of the phases that ran; the last one may not hold.
    """
    ran: list[Gate] = []
    while (step := advice(derive(tools.project))) is not None:
        phase = step.phase
        if step.ends_walk(until):
            break
        # A phase that ran and is advised again would be run for ever.
        if any(gate.phase == phase for gate in ran):
            break
        tools.tell({"event": "phase", "phase": phase})
        started = time.monotonic()
        ran.append(run_phase(tools, phase, ()))
        tools.note(f"{phase} took {duration(time.monotonic() - started)}")
        if not ran[-1].holds:
            break
    return ran
