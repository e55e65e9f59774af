"""The changes of a pull request: the gates and records here, beside the records of another revision; nothing is checked out."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer import handbook
from mltrainer.configs.pages import committed_digest
from mltrainer.errors import InputError, first_names
from mltrainer.gates.gate import given_for, read_waivers
from mltrainer.gates.machine import PhaseState, asked, derive
from mltrainer.gates.waived import committers
from mltrainer.records.envelope import Envelope, Waiver
from mltrainer.records.reading import RECORD_FILE, WAIVERS_FILE, Record, run_of
from mltrainer.reports.criteria import Version, moved
from mltrainer.reports.review import FailingItem, PhaseVerdict, Review, Side, compare
from mltrainer.reproducibility.git import GitError, files_at, locate, resolve
from mltrainer.reproducibility.history import Commit, branches, commits, committed_record, contents, remotes
from mltrainer.workspace import PHASES, Project, from_json, phase_folder, sha256_bytes

MOST_COMMITS = 100  # of a branch, the newest, that are looked through for criteria that moved
UNCHECKED = ("not recomputed", "is not in this repository", "shallow clone", "the ledger lacks")  # in notes of a gate


def review(project: Project, against: str) -> Review:
    """Return the gates' verdicts, recomputed, and the differences from another revision.

    Args:
        project: The project; a fresh clone without data, weights or torch will do.
        against: A branch, a tag or another name of a revision of the same repository.

    Raises:
        InputError: There is no repository or no such revision, or nothing is on record, neither there nor here.
    """
    place, commit, files = _committed(project.root, against)
    states = asked(derive(project))
    records = {state.name: state.gate.record for state in states if state.gate.record}
    others = {
        phase: committed_record(project.root, commit, phase, files[path])
        for phase in PHASES
        if (path := _path(phase, RECORD_FILE)) in files
    }
    if not records and not others:
        raise InputError(f"nothing is on record, neither here nor at {against}", hint="mltrainer run")
    waivers = {phase: read_waivers(project, phase, record)[0] for phase, record in records.items()}
    committed = {phase: committers(project, phase, given) for phase, given in waivers.items()}
    earlier = {phase: _waivers(record, files.get(_path(phase, WAIVERS_FILE))) for phase, record in others.items()}
    named = {path for record in _sound(records).values() for path in record.policy_overrides}
    pages = [path for path in named if handbook.exists(path, project.root)]  # a record that was forged may name anything
    there = Side(_sound(others), earlier, pages=_digests(project.root, commit, sorted(pages)))
    damaged = {phase for phase in records if phase not in _sound(records)}
    compared = compare(Side(_sound(records), waivers, committed, damaged=damaged), there)
    faults = [f"{fault}, at {against}" for record in others.values() for fault in record.faults]
    return Review(
        **vars(compared),
        project=next((record.project.name for record in _sound(records).values()), project.root.name),
        place=place,
        against=against,
        commit=commit,
        moved=moved(_versions(project, commit, records)),
        holds=all(state.gate.holds for state in states) and not compared.impossible and not compared.removed,
        phases=[_verdict(state) for state in states],
        notes=[*faults, *_unchecked(states)],
    )


def _versions(project: Project, commit: str, records: Mapping[str, Record]) -> list[Version]:
    """Return a project's records at a commit, at each later one that changed them, and as they are here."""
    paths = {phase: _path(phase, RECORD_FILE) for phase in PHASES}
    try:
        later = commits(project.root, commit, "phases")
        every = [Commit(commit, "", ""), *later[-MOST_COMMITS:]]
        held = [(one, contents(project.root, one.name, list(paths.values()))) for one in every]
    except GitError:
        return []
    committed = [
        Version(one.author, one.day, {phase: _content(files[path]) for phase, path in paths.items()}) for one, files in held
    ]
    return [*committed, Version(None, None, {phase: record.data for phase, record in records.items()})]


def _content(raw: bytes | None) -> dict[str, Any]:
    """Return a committed record's content; empty if it is missing or damaged, which the gate reports."""
    try:
        content = from_json(raw) if raw else {}
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _unchecked(states: Sequence[PhaseState]) -> list[str]:
    """Return the gates' notes for a reviewer on unchecked evidence: reports of other versions, commits that are missing here."""
    notes = dict.fromkeys(note for state in states for note in state.gate.notes)
    return [note for note in notes if any(word in note for word in UNCHECKED)]


def _path(phase: str, name: str) -> str:
    return f"{phase_folder(phase)}/{name}"


def _committed(root: Path, against: str) -> tuple[str, str, dict[str, bytes]]:
    """Return the project's folder in its repository, a revision's commit, and the records and waivers that it holds."""
    paths = [_path(phase, name) for phase in PHASES for name in (RECORD_FILE, WAIVERS_FILE)]
    try:
        commit = resolve(root, against)
        return locate(root).prefix, commit, files_at(root, commit, paths)
    except GitError as error:
        hint = _named(root, against) if "there is no branch" in str(error) else None
        raise InputError(str(error), where="--against", hint=hint) from error


def _named(root: Path, against: str) -> str:
    """Return the next step where a revision is not known here: fetch it from a remote, or name a branch that there is."""
    try:
        known, others = branches(root), remotes(root)
    except GitError:
        known, others = [], []
    if others:
        remote = "origin" if "origin" in others else others[0]
        fetch = shlex.join(["git", "fetch", remote, against])
        return f"name an existing revision, as `git branch --all` lists them; or fetch it: {fetch}"
    names = [name.removeprefix("refs/heads/") for name in known]
    listed = f"the branches are {first_names(names)}" if names else "there is no branch: commit the project first"
    return f"name an existing revision; {listed}"


def _digests(root: Path, commit: str, pages: Sequence[str]) -> dict[str, str]:
    """Return the digests of the declarations of the project's own pages and templates in a commit, of those that it has."""
    try:
        found = files_at(root, commit, pages) if pages else {}
    except GitError:
        return {}
    return {path: _digest(path, raw) for path, raw in found.items()}


def _digest(path: str, raw: bytes) -> str:
    try:
        return committed_digest(path, raw)
    except InputError:  # no page declares the same: it has changed since
        return sha256_bytes(raw)


def _sound(records: dict[str, Record]) -> dict[str, Envelope[Any]]:
    return {phase: record.typed for phase, record in records.items() if record.typed}


def _waivers(record: Record, raw: bytes | None) -> list[Waiver]:
    """Return the waivers that counted for an earlier record; none where their file is missing or damaged."""
    try:
        return given_for(record, from_json(raw)) if raw else []
    except (ValueError, InputError):
        return []


def _verdict(state: PhaseState) -> PhaseVerdict:
    gate = state.gate
    return PhaseVerdict(
        name=state.name,
        state=state.state,
        holds=gate.holds,
        run=run_of(gate.record) if gate.record else None,
        verdicts=dict(Counter(item.verdict for item in gate.items)),
        not_recomputed=[item.id for item in gate.not_recomputed],
        failing=[FailingItem(item.id, item.statement, item.mend) for item in gate.failing if not item.is_unmeasured],
        stale=list(gate.stale),
    )
