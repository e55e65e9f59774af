"""What an author claims of a run, and the checkpoints that bind it: read from records, ledger and chain, and verified."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.manifest import MANIFEST_FILE, faults, folders, read_manifest, start_of, step_of
from mltrainer.checkpointing.registry import tree_faults
from mltrainer.checkpointing.retention import segment_ends
from mltrainer.errors import GateError, InputError
from mltrainer.records.job import TrainingJob
from mltrainer.records.reading import RECORD_FILE, sound_record
from mltrainer.records.run import Chain, Run
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.git import committed_file
from mltrainer.runs.recorded import recorded_job, recorded_run
from mltrainer.runs.reproduce import refuse_edited
from mltrainer.runs.retrain import original_run
from mltrainer.workspace import TRAINING, Project, digest, sha256_bytes, sha256_file


@dataclass(frozen=True)
class Commitment:
    """What an author committed to before an auditor chose.

    Attributes:
        record: The phase whose record holds the run; None: none does.
        commit: The commit that holds this record; None: it is in none.
        sha256: The digest of commit, record's seal and ledger's end.
    """

    record: str | None
    commit: str | None
    sha256: str


@dataclass(frozen=True)
class Claim:
    """A run as its author claims it.

    Attributes:
        result: Its result.
        job: The job that trained it.
        saved: The folder of its chain, its ledger and its checkpoints.
        begun: The step before its first one: 0, or that of the parent's checkpoint.
        checkpoints: The steps of its checkpoints that are here, each in the ledger.
        commitment: What the author committed to.
        delivered_sha256: The digest of the delivered weights, where finalization's record is of this run and delivers its best.
    """

    result: Run
    job: TrainingJob
    saved: Path
    begun: int
    checkpoints: list[int]
    commitment: Commitment
    delivered_sha256: str | None


def claim_of(project: Project, run: str, folder: Path, saved: Path | None) -> Claim:
    """Return the claim of a run.

    Args:
        project: The project.
        run: The run's id.
        folder: The folder of the audit.
        saved: The folder that holds the run's chain, ledger and checkpoints; None: the run's own.

    Raises:
        InputError: The run has no ledger, or its files are not in that folder.
        GateError: One of them was changed, or a checkpoint is in no line of the ledger.
    """
    if (recorded := recorded_run(project, run)) is not None:
        phase, result = recorded
        job = recorded_job(project, phase, result, folder)
    else:
        result, job = original_run(project, run)
        refuse_edited(project, run)
    saved = saved or project.runs_dir / run
    start = start_of(saved, job.contract)
    begun = read_manifest(start).step if start is not None else 0
    entries = _bound(result, saved, begun)
    steps = [_verified(path, entries, saved) for path in folders(saved / "checkpoints")]
    _require_segments(result, saved, {*steps}, begun)
    delivered = _delivered(project, result)
    return Claim(result, job, saved, begun, steps, _commitment(project, result), delivered)


def _require_segments(result: Run, saved: Path, steps: set[int], begun: int) -> None:
    """Require the checkpoints that the run kept for an audit: without one, the segments would be others than the author's."""
    ends = segment_ends(result.planned_steps, result.saved.segments)
    if missing := sorted(step for step in ends - steps if begun < step <= result.steps):
        raise GateError(
            f"the checkpoint of step {missing[0]} is missing, which checkpoint.segments: {result.saved.segments} keeps",
            where=str(saved / "checkpoints"),
            hint=f"ask the author for it, or: mltrainer reproduce {result.id}",
        )


def _delivered(project: Project, result: Run) -> str | None:
    record = sound_record(project, "finalization")
    if record is None or record.evidence.run.id != result.id or record.evidence.delivered_combination:
        return None
    sha256: str | None = record.evidence.delivered_sha256
    return sha256


def _bound(result: Run, saved: Path, begun: int) -> dict[int, ledger.Entry]:
    """Return the ledger's entries by step, verified to end as the result says, and to belong to its chain."""
    if result.ledger is None:
        raise InputError(
            f"run {result.id} has no ledger of checkpoints, which only mltrainer's own trainer writes",
            hint=f"mltrainer reproduce {result.id}, which trains all of it again",
        )
    names = (fingerprint.CHAIN_FILE, ledger.LEDGER_FILE)
    if missing := [name for name in names if not (saved / name).is_file()]:
        where = "with --checkpoints DIR, name the author's folder of the run: .mltrainer/runs/RUN there"
        raise InputError(f"{' and '.join(missing)} of run {result.id} not found", where=str(saved), hint=where)
    lines, entries = fingerprint.read(saved / fingerprint.CHAIN_FILE), ledger.read(saved / ledger.LEDGER_FILE)
    for what, head, expected in (
        (fingerprint.CHAIN_FILE, fingerprint.verify(lines, fingerprint.CHAIN_FILE), result.chain),
        (ledger.LEDGER_FILE, ledger.head(entries), result.ledger),
    ):
        if Chain(entries=head.entries, head=head.value) != expected:
            found = f"{expected.entries} lines with the last hash {expected.head}, found {head.entries} with {head.value}"
            raise GateError(f"not the file of run {result.id}: expected {found}", where=str(saved / what))
    if fault := fingerprint.tree_fault(fingerprint.last_tree(lines), result.steps, result.weights_tree_sha256):
        raise GateError(
            f"the result of run {result.id} contradicts its chain: {fault}", where=str(saved / fingerprint.CHAIN_FILE)
        )
    for entry in entries:
        place = entry.chain.entries
        line = lines[place - 1] if 0 < place <= len(lines) else ""
        if not re.match(rf"(w )?{entry.step} .* {entry.chain.value}$", line) or not begun < entry.step <= result.steps:
            message = f"the chain does not contain the hash that the checkpoint of step {entry.step} recorded"
            raise GateError(message, where=str(saved / ledger.LEDGER_FILE))
    return {entry.step: entry for entry in entries}


def _verified(folder: Path, entries: dict[int, ledger.Entry], saved: Path) -> int:
    """Return the step of a checkpoint, verified to be unchanged since it was saved."""
    if found := faults(folder) or tree_faults(saved / fingerprint.CHAIN_FILE, folder):
        raise GateError("; ".join(found), where=str(folder), hint="restore the checkpoint, or remove its folder")
    step = step_of(folder)
    assert step is not None
    entry = entries.get(step)
    if entry is None or entry.manifest_sha256 != sha256_file(folder / MANIFEST_FILE):
        raise GateError(
            "this checkpoint is not in the ledger: it was made or changed after the training",
            where=str(folder),
            hint="remove its folder to audit the run from its other checkpoints",
        )
    return step


def _commitment(project: Project, result: Run) -> Commitment:
    record, seal, commit = None, None, None
    for phase in TRAINING:
        found = sound_record(project, phase)
        run = getattr(found.evidence, "run", None) if found is not None else None
        if found is None or run is None or run.id != result.id:
            continue
        if other := [name for name in Run.model_fields if getattr(run, name) != getattr(result, name)]:
            message = f"the record of {phase} has other values of run {run.id} than its result: {', '.join(other[:5])}"
            raise GateError(message, where=RECORD_FILE, hint=f"mltrainer gate check {phase}")
        path = project.phase_dir(phase) / RECORD_FILE
        committed = committed_file(project.root, project.relative(path))
        is_committed = committed is not None and sha256_bytes(committed.content) == sha256_file(path)
        record, seal, commit = phase, found.seal, committed.commit if committed is not None and is_committed else None
    end = result.ledger.model_dump() if result.ledger else None
    return Commitment(record, commit, digest({"commit": commit, "record": seal, "ledger": end, "run": result.id}))
