"""Gates, recomputed: verdicts follow from the records and the files on disk, and are never remembered.

Nothing of the project is run: a clone may be a stranger's. So the one verdict that is read from the record is that of a
custom check, and it is shown as such.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer.configs.pages import NOT_OFFERED, Item, PhasePage, ToolPage, shipped_page, trained_by
from mltrainer.errors import FaultAt, GateError, InputError
from mltrainer.figures.bound import data_digest
from mltrainer.gates import tried
from mltrainer.gates.check import CHECKS, Outcome
from mltrainer.gates.checks import run_check
from mltrainer.gates.claims import hidden
from mltrainer.gates.digests import NOT_HASHED, OTHER_SIZE, OUTSIDE, WHY_NOT_HASHED, FileDigests
from mltrainer.gates.policy import Policy, policy_of
from mltrainer.gates.recomputed import CheckedRecord, contradictions
from mltrainer.gates.statistics import over_folds
from mltrainer.gates.verdicts import beside, read_verdict
from mltrainer.gates.waived import doubts, waiver_of
from mltrainer.observe.file_rows import unplanned
from mltrainer.plugins import located
from mltrainer.records.baseline import Baseline
from mltrainer.records.common import InputRow
from mltrainer.records.envelope import Envelope, FigureRow, Waiver, trainer_of
from mltrainer.records.optimization import Skipped
from mltrainer.records.planning import Planning
from mltrainer.records.reading import GATE_FILE, RECORD_FILE, WAIVERS_FILE, Record, read_record, run_of
from mltrainer.records.run import TRAIN, Run
from mltrainer.records.verdict import Verdict
from mltrainer.reports.claims import doubts as doubts_of_claim
from mltrainer.reports.gate_items import GateItem as GateItem
from mltrainer.reports.limited import is_rendered_apart, render_limited
from mltrainer.reports.render import made_by, render, template_paths
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import contents, marks
from mltrainer.reproducibility.pins import requirements_file
from mltrainer.workspace import (
    MODEL_FOLDER,
    PHASES,
    TRAINING,
    Project,
    digest,
    files_of_model,
    pretty_json,
    read_json,
    read_whole,
    sha256_bytes,
)

AWAY_ROLES = {"data", "checkpoint", "model", "run", "plugin"}  # files that a fresh clone may lack; their digests are recorded
PINS_FILE = "requirements.txt"
MOST_SHOWN, CONTEXT = 60, 20  # bytes of a line that differs, and of these before the difference
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:mltrainer:gate:v1"


@dataclass(frozen=True)
class Gate:
    """A phase's gate.

    Attributes:
        phase: The phase's name.
        record: Its record, or None before the phase ran.
        items: The items, recomputed from the record.
        stale: The changes since, each with its next step.
        notes: The facts that could not be checked here, such as data that is not in this clone.
        skipped: Whether the phase was skipped, on the record.
    """

    phase: str
    record: Record | None
    items: tuple[GateItem, ...] = ()
    stale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped: bool = False

    def __repr__(self) -> str:
        return f"Gate({self.phase} {'holds' if self.holds else 'does not hold'})"

    @property
    def content(self) -> Envelope[Any] | None:
        """The record as a model; None if there is none that can be trusted."""
        return self.record.typed if self.record else None

    @property
    def holds(self) -> bool:
        """Whether the next phase may run."""
        # A checklist without items fails nothing: it must not hold for that.
        return self.record is not None and not self.stale and bool(self.items) and not self.failing

    @property
    def is_there(self) -> bool:
        """Whether there is something to judge: a record, or reports without their record."""
        return self.record is not None or bool(self.stale)

    @property
    def failing(self) -> list[GateItem]:
        """The items that do not hold; those with a next step come first."""
        return sorted((item for item in self.items if item.verdict == "fail"), key=lambda item: item.mend is None)

    @property
    def not_recomputed(self) -> list[GateItem]:
        """The items whose verdict is the project's own check's, and is not recomputed."""
        return [item for item in self.items if not item.recomputed]

    @property
    def first_failing(self) -> GateItem:
        """The failing item to fix first: a measured one, before those that a stopped phase did not reach."""
        return min(self.failing, key=lambda item: isinstance(item.evidence.get("missing"), str))

    def _repr_markdown_(self) -> str:
        from mltrainer.reports.notebook import gate_markdown  # imported only where it is shown

        return gate_markdown(self.phase, self.holds, self.items, self.stale)

    def _repr_html_(self) -> str:
        from mltrainer.reports.notebook import gate_html

        return gate_html(self.phase, self.holds, self.items, self.stale)


@dataclass
class _Look:
    """The inputs of the checks of one gate."""

    project: Project
    policy: Policy
    record: Record
    digests: FileDigests
    demand_files: bool
    before: Sequence[Gate]
    notes: list[str] = field(default_factory=list)

    @property
    def page(self) -> PhasePage:
        return self.policy.page

    @property
    def content(self) -> Envelope[Any]:
        return self.record.trusted

    @property
    def run(self) -> Run | None:
        """The run in the evidence; for diagnostics, the baseline's."""
        return getattr(self.content.evidence, "run", None)

    @property
    def bound_runs(self) -> set[str]:
        """The results of runs that the record binds."""
        return {row.path for row in self.content.inputs if row.role == "run"}

    @property
    def rerun(self) -> str:
        # No phase runs on records of an earlier release: such a project begins again.
        return f"mltrainer phase run {self.page.phase if self.policy.release is None else PHASES[0]}"


def check_gates(project: Project, demand_files: bool = False, known: FileDigests | None = None) -> list[Gate]:
    """Return every phase's gate, in order; a gate holds only on those before it.

    Args:
        project: The project; a fresh clone without data, weights or torch will do.
        demand_files: Data and checkpoints must be here, and are hashed again whole.
        known: Digests that the caller keeps; nothing is written then.
    """
    digests = FileDigests(project, trust_times=not demand_files) if known is None else known
    digests.begin()
    gates: list[Gate] = []
    for phase in PHASES:
        gates.append(_check(project, phase, gates, digests, demand_files))
    if known is None:
        digests.save()
    return _with_removed(project, _with_lost(project, gates))


def _with_removed(project: Project, gates: list[Gate]) -> list[Gate]:
    """Return the gates; the last one that is there notes the phases that began a run and have no record."""
    notes = tried.removed(project, [gate.phase for gate in gates if not gate.is_there])
    there = [gate.phase for gate in gates if gate.is_there]
    if not notes or not there:
        return gates
    return [replace(gate, notes=(*notes, *gate.notes)) if gate.phase == there[-1] else gate for gate in gates]


def _with_lost(project: Project, gates: list[Gate]) -> list[Gate]:
    """Return the gates; a gate is stale if its record was committed and is missing here: somebody removed it."""
    missing = {
        gate.phase: f"{project.relative(project.phase_dir(gate.phase))}/{RECORD_FILE}" for gate in gates if not gate.is_there
    }
    if not missing or marks(project.root) is None:
        return gates
    try:
        held = contents(project.root, "HEAD", list(missing.values()))
    except GitError:  # no commit yet
        return gates
    lost = {phase: path for phase, path in missing.items() if held.get(path) is not None}
    return [replace(gate, stale=(_lost(lost[gate.phase], gate.phase),)) if gate.phase in lost else gate for gate in gates]


def _lost(path: str, phase: str) -> str:
    return f"{path} is in the last commit and not here; next: git checkout HEAD -- {path}, or mltrainer phase run {phase}"


def _check(project: Project, phase: str, before: Sequence[Gate], digests: FileDigests, demand_files: bool) -> Gate:
    record = read_record(project, phase)
    if record is None:
        return Gate(phase, None, stale=tuple(_orphans(project, phase)))
    if record.faults:
        return Gate(phase, record, stale=tuple(f"{fault}; next: mltrainer phase run {phase}" for fault in record.faults))
    policy = policy_of(project, record.trusted)
    try:
        look = _Look(
            project, policy, record, digests, demand_files, before, [*policy.notes, *doubts_of_claim(record.trusted.evidence)]
        )
        return _measure(look, before[-1] if before else None)
    # A forged record can pass its models and still lack what a check reads, as in a config: that closes this gate alone.
    except (KeyError, TypeError, ValueError, AttributeError) as hole:
        fault = f"{RECORD_FILE} lacks what a phase records ({type(hole).__name__}: {hole}); next: mltrainer phase run {phase}"
        return Gate(phase, record, stale=(fault[:300],))


def _measure(look: _Look, previous: Gate | None) -> Gate:
    record, page = look.record, look.page
    waivers, waiver_faults = read_waivers(look.project, page.phase, record)
    look.notes.extend(doubts(look.project, page.phase, waivers))
    # Before the artifacts: reports show the verdicts, and are rendered again from these.
    items = evaluate(look.content, page, waivers, look.project.root)
    verdict, verdict_faults = read_verdict(look.project, page.phase, record)
    stale = [*waiver_faults, *verdict_faults]
    for source in _STALENESS:
        stale.extend(source(look, previous))
    stale.extend(_artifacts(look, waivers, items, verdict))
    skipped = isinstance(look.content.evidence, Skipped)
    return Gate(page.phase, record, tuple(items), tuple(dict.fromkeys(stale)), tuple(look.notes), skipped)


def _orphans(project: Project, phase: str) -> Iterator[str]:
    """Yield the reports in a phase's folder that lack their record: it was removed."""
    reports = [name for name in shipped_page(phase).artifacts if name.endswith(".md")]
    for path in (project.phase_dir(phase) / name for name in [GATE_FILE, *reports]):
        if path.exists():
            yield f"{project.relative(path)} has no {RECORD_FILE} beside it; next: mltrainer phase run {phase}"


def gates_before(project: Project, phase: str, asks: str | None = None) -> list[Gate]:
    """Return the gates before a phase, all of which hold by records of this version.

    Args:
        project: The project.
        phase: The phase.
        asks: The name, in words, of whatever needs the gates in the phase's place.

    Raises:
        GateError: One does not.
    """
    before = check_gates(project)[: PHASES.index(phase)]
    for gate in before:
        if not gate.holds:
            raise closed(gate, f"{asks or phase} is locked")
        made = gate.content.mltrainer if gate.content else None
        if made != mltrainer.__version__:
            what = f"{asks or phase} is locked: the record of {gate.phase} is of another mltrainer"
            raise GateError(what, expected=mltrainer.__version__, found=made, hint="mltrainer phase run planning")
    return before


def closed(gate: Gate, what: str, hint: str | None = None) -> GateError:
    """Return the error for what a closed gate forbids; `hint`: the next step, by default of the item that does not hold."""
    fault = FaultAt(gate.phase, "a record that holds", gate.stale[0] if gate.stale else "none")
    if gate.record is not None and not gate.stale:
        first = gate.first_failing
        fault = FaultAt(f"{gate.phase}, item {first.id}", first.statement, first.measured)
    return GateError(f"{what}: {why_closed(gate)}", hint=hint or _next_step(gate), faults=[fault])


def why_closed(gate: Gate) -> str:
    """Return the reason for a closed gate, as a sentence: no record, a stale one, or the first failing item."""
    if gate.record is None:
        return f"{gate.phase} has not run"
    if gate.stale:
        return f"the gate of {gate.phase} is stale: {gate.stale[0]}"
    first = gate.first_failing
    return f"the gate of {gate.phase} does not hold: {first.id}: {first.statement}"


def _next_step(gate: Gate) -> str:
    rerun = f"mltrainer phase run {gate.phase}"
    return rerun if gate.record is None or gate.stale else gate.first_failing.mend or rerun


# --- verdicts -------------------------------------------------------------------------------------


def evaluate(record: Envelope[Any], page: PhasePage, waivers: Sequence[Waiver], root: Path | None = None) -> list[GateItem]:
    """Return the verdict of every item of a phase's checklist.

    Args:
        record: The phase's record.
        page: The checklist.
        waivers: The waivers that a person gave.
        root: The project's folder, whose own pages say which tool trained.
    """
    waived = {waiver.item for waiver in waivers}
    trained = trained_by(record.phase, root, trainer_of(record.evidence))
    items = []
    for item in page.items:
        outcome = _outcome(item, record, root, trained)
        verdict = "waived" if outcome.verdict == "fail" and item.waivable and item.id in waived else outcome.verdict
        is_said = not item.waivable or "mltrainer gate waive" in (outcome.hint or "")
        waive = "" if is_said else f'; or mltrainer gate waive {page.phase} {item.id} --reason "..."'
        hint = f"{outcome.hint}{waive}" if verdict == "fail" and outcome.hint else None
        items.append(GateItem(item.id, _marked(item), verdict, outcome.evidence, hint, recomputed=item.check is None))
    return items


def _outcome(item: Item, record: Envelope[Any], root: Path | None, trained: ToolPage) -> Outcome:
    if item.check:
        from mltrainer.gates.custom import recorded_outcome  # imported only for a project with custom checks

        return recorded_outcome(item, record)
    if item.needs and item.needs not in trained.capabilities:
        offered = NOT_OFFERED.get(trained.tool, "")
        return Outcome("not_applicable", {"rule": f"{offered}{trained.tool}, which trained this, cannot show {item.needs}"})
    if item.id not in CHECKS:
        hint = f'name its function on the page: check: "my_project.gates:{item.id}"; then mltrainer phase run {record.phase}'
        return Outcome("fail", {"missing": f"no check is named {item.id}"}, hint)
    return run_check(item.id, record, item.settings)


def _marked(item: Item) -> str:
    """Return an item's statement, which names the check of a custom item."""
    return f"{item.statement} (by the project's own check, {item.check}, not recomputed here)" if item.check else item.statement


def read_waivers(project: Project, phase: str, record: Record) -> tuple[list[Waiver], list[str]]:
    """Return a phase's waivers and their faults; a waiver counts only for the record that it was given for."""
    path = project.phase_dir(phase) / WAIVERS_FILE
    if not path.exists():
        return [], []
    try:
        return given_for(record, read_json(path)), []
    except InputError:
        name = project.relative(path)
        return [], [f"{name} is not readable; next: remove it, and waive again with `mltrainer gate waive`"]


def given_for(record: Record, content: Any) -> list[Waiver]:
    """Return the waivers in a phase's file that were given for a record, and by somebody for a reason.

    Raises:
        InputError: The content is not one of such a file.
    """
    try:
        given = [waiver_of(row) for row in content["waivers"] if row["record"] == record.sha256]
        return [waiver for waiver in given if all(text.strip() for text in (waiver.item, waiver.reason, waiver.by))]
    except (KeyError, TypeError, AttributeError, ValueError) as hole:
        hint = "bring it back, such as from git"
        raise InputError(f"not readable as waivers ({type(hole).__name__})", where=WAIVERS_FILE, hint=hint) from hole


# --- staleness ------------------------------------------------------------------------------------


def _origin(look: _Look, previous: Gate | None) -> Iterator[str]:
    """The record belongs to this project and continues the record of the phase before."""
    if previous is not None and not previous.holds:
        yield f"the gate before it, {previous.phase}, does not hold"
    expected = previous.record.sha256 if previous is not None and previous.record else None
    if look.content.previous != expected:
        before = previous.phase if previous else "nothing"
        yield f"it was made from a record of {before} that differs from the one here; next: {look.rerun}"


def _inputs(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """Every file that the phase read or wrote is unchanged."""
    for row in look.content.inputs:
        sha256 = look.digests.of(located(look.project.root, row.path), row.size)
        if sha256 == row.sha256:
            continue
        if sha256 is None and row.role in AWAY_ROLES and look.demand_files:
            wanted = f"expected sha256 {row.sha256[:12]}"
            yield f"{row.path} ({row.role}) is missing; {wanted}; next: restore it, or {look.rerun}"
        elif note := _why_it_does_not_count(look, row, sha256):
            look.notes.append(f"{row.path}: {note}")
        else:
            yield _change(look, row, sha256)


def _why_it_does_not_count(look: _Look, row: InputRow, sha256: str | None) -> str | None:
    """Return a note on a file whose other digest is no change: it cannot be checked here, or has the same values as before."""
    is_away = row.role in AWAY_ROLES
    if sha256 is None:
        return "not here, digest recorded" if is_away else None
    if sha256 == OUTSIDE and is_away and not look.demand_files:
        return "not read, because it is a link out of the project; digest recorded"
    if sha256 == NOT_HASHED and is_away:
        return WHY_NOT_HASHED
    return "edited since, to the same values" if _says_the_same(look, row) else None


def _change(look: _Look, row: InputRow, sha256: str | None) -> str:
    change = "is missing" if sha256 is None else f"changed: sha256 {row.sha256[:12]} -> {_shown(look, row.path, sha256)}"
    detail = config_change(look, row.path, is_whole=row.role == "config") if row.role in ("config", "project") else ""
    return f"{row.path} ({row.role}) {change}{detail}; next: {row.mend or look.rerun}"


def _says_the_same(look: _Look, row: InputRow) -> bool:
    """Return True if one of planning's configs was edited without a change of a deciding value: in comments or layout, say."""
    if look.page.phase != "planning" or row.role not in ("project", "config"):
        return False
    from mltrainer.gates.deciding import says_the_same  # only who edited waits for the configs' models

    return says_the_same(look.project.root / row.path, row.role, look.content.evidence)


def _shown(look: _Look, path: str, sha256: str) -> str:
    """Return a file's digest for a message; not of a file outside of the project, which a stranger's record may name."""
    is_inside = Path(os.path.normpath(look.project.root / path)).is_relative_to(look.project.root)
    return sha256[:12] if is_inside or sha256 in (OUTSIDE, OTHER_SIZE, NOT_HASHED) else "another one"


def config_change(look: _Look, path: str, is_whole: bool = True) -> str:
    """Return, for a message, the keys of an edited config that differ from the recorded one, at most five.

    Args:
        look: The inputs of the gate's checks.
        path: The config's path in the project.
        is_whole: Whether it has every key, so that a missing one was removed; mltrainer.yaml has only some.
    """
    from mltrainer.configs.loading import flatten, read_text
    from mltrainer.configs.project import meaningful
    from mltrainer.configs.yaml import parse

    try:
        now = flatten(parse(read_text(look.project.root / path, "the config"), path).value)
    except (InputError, AttributeError):
        return " (it is not readable now)"
    then = flatten(meaningful(getattr(look.content.evidence, "config", {})))
    missing = then.keys() - now.keys() if is_whole else set()
    changed = [key for key in sorted(now.keys() | missing) if key in missing or now[key] != then.get(key)]
    keys = [f"{key}: missing" if key in missing else f"{key}: {then.get(key)!r} -> {now[key]!r}" for key in changed]
    return f" ({'; '.join(keys[:5])})" if keys else ""


def _delivered(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """The delivered model's folder contains only the delivered model."""
    folder = look.project.phase_dir(look.page.phase) / MODEL_FOLDER
    bound = {row.path for row in getattr(look.content.evidence, "model_files", [])}
    for name in map(look.project.relative, files_of_model(folder)):
        if name not in bound:
            yield f"{name} was not delivered with the model; next: move it elsewhere"


def _policy(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """The checklist, thresholds and templates are the present ones: the project's own, or the shipped ones."""
    yield from look.policy.stale


def _custom(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """The verdicts of the project's own checks, and the checks themselves, are unchanged."""
    if not any(item.check for item in look.page.items):
        return
    from mltrainer.gates.custom import changes

    yield from changes(look.page, look.content, look.record.evidence, look.project.root, look.digests.of)


def _run(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """The run in the evidence is bound by digest, and equals the run's own result, if that is here."""
    run = look.run
    path = look.project.runs_dir / str(run_of(look.record)) / RESULT_FILE
    # Without that binding a record could name any run, and its result could be replaced unseen.
    if look.page.phase in TRAINING and look.project.relative(path) not in look.bound_runs:
        yield f"{RECORD_FILE} is not bound to the result of run {run_of(look.record)}; next: {look.rerun}"
    if run is not None and run.purpose != TRAIN:
        yield f"run {run.id} was not started by a phase, so it is no evidence; next: {look.rerun}"
    if run is None or not path.exists():
        return
    wrote = _wrote(path)
    # A run that an earlier phase trained is taken over where the contract is the same: its result keeps that phase's name.
    if wrote and any(wrote.get(key) != value for key, value in run.written().items() if key != "phase"):
        yield f"{RECORD_FILE} and {look.project.relative(path)} differ on run {run.id}; next: {look.rerun}"


def _folds(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """Each fold's row is the one that its run wrote, and the mean follows from the rows."""
    folds = look.content.evidence.folds if isinstance(look.content.evidence, Baseline) else None
    if folds is None:
        return
    for row in folds.rows:
        path = look.project.runs_dir / row.run / RESULT_FILE
        recorded = row.model_dump(exclude={"fold", "run"})
        if look.project.relative(path) not in look.bound_runs:
            yield f"{RECORD_FILE} is not bound to the result of fold {row.fold}; next: {look.rerun}"
        # A fresh clone has no run folders: there the digest of the result, bound above, has to do.
        elif path.exists() and any(_wrote(path).get(key) != value for key, value in recorded.items()):
            yield f"{RECORD_FILE} and {look.project.relative(path)} differ on fold {row.fold}; next: {look.rerun}"
    if over_folds(folds.rows) != (folds.metrics, folds.spread):
        yield f"{RECORD_FILE} has a mean over the folds that does not follow from them; next: {look.rerun}"


def _unplanned(look: _Look, previous: Gate | None) -> Iterator[str]:
    """The files that planning did not bind are those that its record and the run's own list of files show."""
    if look.page.phase != "baseline" or previous is None or previous.content is None:
        return
    planning, recorded = previous.content.evidence, look.content.evidence.unplanned
    bound = (planning.opened, planning.unsteady) if isinstance(planning, Planning) else (None, None)
    unbound = unplanned(*bound, look.content.evidence.run.opened)
    if unbound != recorded:
        words = ["nobody looked" if paths is None else ", ".join(paths) or "none" for paths in (recorded, unbound)]
        faults = f"files that planning did not bind: {words[0]}; its run opened: {words[1]}"
        yield f"{RECORD_FILE} has {faults}; next: {look.rerun}"


def _wrote(path: Path) -> dict[str, Any]:
    """Return a run's result; empty if it is damaged, which `_inputs` reports."""
    try:
        return dict(read_json(path))
    except (InputError, TypeError, ValueError):
        return {}


def _recomputed(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """The values that files here can give again equal the record's."""
    inputs = (look.project, look.content, look.page, look.digests, look.demand_files, look.notes, look.policy.release)
    checked = CheckedRecord(*inputs)
    for fault in contradictions(checked):
        yield f"{fault}; next: {look.rerun}"


def _equations(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """Every value of the record satisfies the equations within it and with the records before."""
    records = [gate.record for gate in look.before if gate.record] + [look.record]
    path = look.project.phase_dir(look.page.phase) / RECORD_FILE
    state = [mltrainer.__version__, *(record.sha256 for record in records)]
    what = f"equations {look.page.phase}"
    if len(records) <= len(look.before) or look.digests.agreed(what, path, state):
        return  # without all records before it, this one proves nothing, which `_origin` reports
    from mltrainer.gates.equations import MOST_FAULTS, contradictions  # a cached answer needs no import

    name = look.project.relative(path)
    envelopes: dict[str, Envelope[Any]] = {record.trusted.phase: record.trusted for record in records if record.typed}
    every = contradictions(envelopes, look.page.phase, look.project.root, by_own_rules=look.policy.release is None)
    faults = [*{(fault.field, fault.expected): fault for fault in every}.values()]
    for fault in faults[:MOST_FAULTS]:
        yield f"{name}: {fault._replace(field=fault.field.partition('.')[2]).sentence}; next: {look.rerun}"
    if len(faults) > MOST_FAULTS:
        yield f"{name}: {len(faults) - MOST_FAULTS} more values contradict others; next: {look.rerun}"
    if not faults:
        look.digests.agree(what, path, state)


def _tried(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """The ledger of tried runs is whole, and names the runs that the record counts."""
    yield from tried.faults(look.project, look.content, look.digests)


def _claimed(look: _Look, _previous: Gate | None) -> Iterator[str]:
    """Planning bound the claim that is here, and its record says what was known before it."""
    if isinstance(look.content.evidence, Planning):
        for fault in hidden(look.project, look.content.evidence, look.digests):
            yield f"{fault}; next: {look.rerun}"


_STALENESS: tuple[Callable[[_Look, Gate | None], Iterator[str]], ...] = (
    *(_origin, _inputs, _delivered, _policy, _custom, _run, _folds, _unplanned, _recomputed, _claimed, _equations, _tried),
)


# --- artifacts ------------------------------------------------------------------------------------


def artifacts(
    project: Project, record: Record, waivers: Sequence[Waiver], items: Sequence[GateItem], verdict: Verdict | None = None
) -> dict[str, bytes]:
    """Return a phase's reports and pins by name; identical records, waivers, verdicts and templates give identical bytes."""
    content = record.trusted
    shown = [waiver.written() for waiver in (*content.waived_before, *waivers)]
    rendering = render_limited if is_rendered_apart(content.phase, project.root, record.size) else render
    rendered = rendering({**record.data, **beside(verdict)}, shown, items, project.root)
    return {name: text.encode() for name, text in {**rendered, **_pins(content)}.items()}


def _pins(record: Envelope[Any]) -> dict[str, str]:
    """Return the requirements file of the environment that planning recorded; empty for another phase."""
    return {PINS_FILE: requirements_file(record.evidence.environment)} if record.phase == "planning" else {}


def _artifacts(look: _Look, waivers: Sequence[Waiver], items: list[GateItem], verdict: Verdict | None) -> Iterator[str]:
    """Every report is the record's rendering, byte for byte, and every figure is the one that the record binds."""
    folder = look.project.phase_dir(look.page.phase)
    yield from _figures(look)
    if look.policy.release is not None:
        yield from _as_bound(look, folder)
        return
    shown = [waiver.written() for waiver in waivers], [item.view() for item in items]
    # Waivers, verdicts and templates belong to the key: reports show them, and they change while the record does not.
    key = digest([look.record.sha256, *shown, beside(verdict), made_by(look.page.phase, look.project.root)])
    path = folder / RECORD_FILE
    known = look.digests.rendered(look.page.phase, path, key)
    if known is not None and _is_as_rendered(look, known):
        return  # Jinja is not even imported
    try:
        expected = artifacts(look.project, look.record, waivers, items, verdict)
    except InputError as error:
        yield f"{error.where or RECORD_FILE}: {error.message}; next: {error.hint or look.rerun}"
        return
    for name, content in sorted(expected.items()):
        yield from _compare(folder / name, content, look)
    expected_gate = statement(look.project, look.record, digests_of(expected))
    look.digests.keep_rendered(look.page.phase, path, key, digests_of({**expected, GATE_FILE: expected_gate}))
    yield from _compare(folder / GATE_FILE, expected_gate, look)


def _as_bound(look: _Look, folder: Path) -> Iterator[str]:
    """Every report of an earlier release, whose templates are not here, has the digest that its gate record binds."""
    place, bound = look.project.relative(folder), subjects_of(folder / GATE_FILE) or {}
    names = sorted({*template_paths(look.page.phase), *_pins(look.content)})
    reports = {name: bound.get(f"{place}/{name}", "") for name in names}
    for name, sha256 in reports.items():
        if look.digests.of(folder / name) != sha256:
            back = _back(f"{place}/{name}", look)
            yield f"{place}/{name} is not the report that {GATE_FILE} binds: missing, blank or edited; next: {back}"
    yield from _compare(folder / GATE_FILE, statement(look.project, look.record, reports), look)


def digests_of(rendered: dict[str, bytes]) -> dict[str, str]:
    """Return the digest of each rendered file."""
    return {name: sha256_bytes(content) for name, content in rendered.items()}


def _is_as_rendered(look: _Look, known: dict[str, str]) -> bool:
    """Return True if the files have the digests of an earlier rendering; otherwise the reports are rendered again."""
    folder = look.project.phase_dir(look.page.phase)
    return all(look.digests.of(folder / name) == sha256 for name, sha256 in known.items())


def _figures(look: _Look) -> Iterator[str]:
    """Every figure was drawn from the record's evidence, and is at its report's path; none is drawn again."""
    data = data_digest(look.page.phase, look.record.evidence)
    for row in look.content.figures:
        name = look.project.relative(figure_path(look.project, look.page.phase, row))
        sha256 = look.digests.of(look.project.root / name)
        if sha256 is None:
            yield f"{name} is missing; next: {look.rerun}"
        elif sha256 != row.sha256:
            yield f"{name} is not the figure that the record binds: blank, edited, or of another run; next: {look.rerun}"
        elif data is not None and row.data_sha256 != data:
            yield f"{name} was drawn from other evidence than the record's; next: {look.rerun}"


def figure_path(project: Project, phase: str, row: FigureRow) -> Path:
    """Return the path of a record's figure: in the phase's folder, or in that of the phase whose run it shows."""
    return Path(os.path.normpath(project.phase_dir(phase) / row.file))


def _compare(path: Any, expected: bytes, look: _Look) -> Iterator[str]:
    name = look.project.relative(path)
    try:
        content = read_whole(path)
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        yield f"{name} {what}; next: {look.rerun}"
        return
    if content == expected:
        return
    line, wanted, found = _first_difference(content, expected)
    what = f"{name}:{line} differs from the record's rendering: expected {wanted}, found {found}"
    yield f"{what}; next: {_back(name, look)}"


def _back(name: str, look: _Look) -> str:
    """Return the next step for a report that was edited."""
    return f"git checkout -- {name} where it is committed, or {look.rerun}"


def _first_difference(content: bytes, expected: bytes) -> tuple[int, str, str]:
    """Return the number of the first line that differs, from 1, and what differs in it: the expected and the found text."""
    lines = itertools.zip_longest(expected.split(b"\n"), content.split(b"\n"))
    number, wanted, found = next((number, *both) for number, both in enumerate(lines, 1) if both[0] != both[1])
    pairs = zip(wanted or b"", found or b"", strict=False)
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return number, _excerpt(wanted, alike), _excerpt(found, alike)


def _excerpt(line: bytes | None, alike: int) -> str:
    """Return a line for a message, from shortly before the place where it differs."""
    if line is None:
        return "no such line"
    start = max(0, alike - CONTEXT)
    text = line[start : start + MOST_SHOWN].decode("utf-8", "replace")
    return repr(f"{'...' * (start > 0)}{text}{'...' * (len(line) > start + MOST_SHOWN)}")


def subjects_of(path: Path) -> dict[str, str] | None:
    """Return the digests that a gate record binds, by file; None if it is missing or not readable."""
    try:
        return {str(row["name"]): row["digest"]["sha256"] for row in read_json(path)["subject"]}
    except (InputError, KeyError, TypeError):
        return None


def statement(project: Project, record: Record, rendered: dict[str, str]) -> bytes:
    """Return the gate record: an in-toto statement that binds a phase's artifacts to their inputs.

    It holds digests and no verdict: verdicts are recomputed (in-toto Attestation Framework, Statement v1).
    """
    content = record.trusted
    folder = project.relative(project.phase_dir(content.phase))
    subjects = {f"{folder}/{name}": sha256 for name, sha256 in rendered.items()}
    subjects |= {project.relative(figure_path(project, content.phase, row)): row.sha256 for row in content.figures}
    subjects[f"{folder}/record.json"] = record.sha256
    return pretty_json(
        {
            "_type": STATEMENT_TYPE,
            # Sorted by name: the gate compares these bytes, whatever order the files were rendered in.
            "subject": [{"name": name, "digest": {"sha256": sha}} for name, sha in sorted(subjects.items())],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "phase": content.phase,
                "previous": content.previous,
                "inputs": [row.written() for row in content.inputs],
                "checklist": digest(content.policy),
            },
        }
    )
