"""A run as its author committed to it, with the checkpoints that bind it: read from records, ledger and chain, and verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.inventory import tree_faults
from mltrainer.checkpointing.manifest import MANIFEST_FILE, faults, folders, step_of
from mltrainer.checkpointing.retention import segment_ends
from mltrainer.errors import GateError, InputError
from mltrainer.records.job import TrainingJob
from mltrainer.records.reading import RECORD_FILE, sound_record
from mltrainer.records.run import Chain, Run
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.git import committed_file
from mltrainer.runs.recorded import recorded_job, recorded_run, sound_runs
from mltrainer.runs.reproduce import refuse_edited
from mltrainer.runs.retrain import original_run, step_before
from mltrainer.workspace import Project, digest, sha256_file

TOOL = "segment_replayer"
RESTORE = "ask the author for the folder of the run as it was when it ended"
# What of a job its contract decides, or what no bit depends on: anything else, such as where a trial is cut, is not committed to.
CONTRACTED = frozenset(
    ("schema", "run", "phase", "threads", "gate", "contract", "code_files", "data_files", "input_files", "parent")
)


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
class CommittedRun:
    """A run as its author committed to it.

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

    def replayed(self, project: Project, folder: Path) -> dict[str, Any]:
        """Return the entries of a `ReplayJob` that goes on from the run's checkpoints, in one process, whatever trained it."""
        config = self.job.config
        launch = config.launch.model_copy(update={"processes": 1})
        return {
            **{key: value for key, value in self.job.written().items() if key in CONTRACTED},
            "purpose": "reproduction",
            "folder": project.relative(folder),
            "config": config.model_copy(update={"launch": launch}),
            "compare": str(self.saved),
            "start_of": str(self.saved),
            "expected_numerics": self.result.numerics_class,
            "tool": TOOL,
            "saved": str(self.saved),
            "compared": self.checkpoints,
            "spikes": self.result.skipped or [],
            "splits": self.result.splits or [],
        }


def committed_run(project: Project, run: str, folder: Path, saved: Path | None) -> CommittedRun:
    """Return a run as its author committed to it.

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
    begun = step_before(saved, job.contract)
    entries = _entries(result, saved, begun)
    steps = [_verified(path, entries, saved) for path in folders(saved / "checkpoints")]
    _require_segments(result, saved, {*steps}, begun)
    return CommittedRun(result, job, saved, begun, steps, _commitment(project, result), _delivered(project, result))


def _require_segments(result: Run, saved: Path, steps: set[int], begun: int) -> None:
    """Require the checkpoints that the run kept for an audit: without one, the segments would be others than the author's."""
    ends = segment_ends(result.planned_steps, result.saved.segments, (row.step for row in result.history))
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


def _entries(result: Run, saved: Path, begun: int) -> dict[int, ledger.Entry]:
    """Return the ledger's entries by step, verified to end as the result says, and to belong to the run's chain."""
    if result.ledger is None:
        raise InputError(
            f"run {result.id} has no ledger of checkpoints, which only mltrainer's own trainer writes",
            hint=f"mltrainer reproduce {result.id}, which trains all of it again",
        )
    chain, book = saved / fingerprint.CHAIN_FILE, saved / ledger.LEDGER_FILE
    if missing := [path.name for path in (chain, book) if not path.is_file()]:
        hint = "with --checkpoints DIR, name the author's folder of the run: .mltrainer/runs/RUN there"
        raise InputError(f"{' and '.join(missing)} of run {result.id} not found", where=str(saved), hint=hint)
    lines, entries = fingerprint.read(chain), ledger.read(book)
    _require_end(result, chain, result.chain, fingerprint.verify(lines, str(chain)))
    _require_end(result, book, result.ledger, ledger.head(entries))
    if fault := fingerprint.tree_fault(fingerprint.last_tree(lines), result.steps, result.weights_tree_sha256):
        raise GateError(f"the result of run {result.id} contradicts its chain: {fault}", where=str(chain), hint=RESTORE)
    for entry in entries:
        if not begun < entry.step <= result.steps or not _is_in(lines, entry):
            message = f"the chain does not contain the hash that the checkpoint of step {entry.step} recorded"
            raise GateError(message, where=str(book), hint=RESTORE)
    return {entry.step: entry for entry in entries}


def _require_end(result: Run, path: Path, expected: Chain, found: fingerprint.Head) -> None:
    if expected != Chain(entries=found.entries, head=found.value):
        message = f"not the file of run {result.id}: expected {expected.entries} lines with the last hash {expected.head}"
        raise GateError(f"{message}, found {found.entries} with {found.value}", where=str(path), hint=RESTORE)


def _is_in(lines: Sequence[str], entry: ledger.Entry) -> bool:
    """Return True if the chain's line at an entry's place is of its step and has its hash."""
    place = entry.chain.entries
    words = lines[place - 1].removeprefix("w ").split() if 0 < place <= len(lines) else [""]
    return words[0] == str(entry.step) and words[-1] == entry.chain.value


def _verified(folder: Path, entries: dict[int, ledger.Entry], saved: Path) -> int:
    """Return the step of a checkpoint, verified to be unchanged since it was saved."""
    if found := faults(folder) or tree_faults(saved / fingerprint.CHAIN_FILE, folder):
        raise GateError("; ".join(found), where=str(folder), hint=RESTORE)
    step = step_of(folder)
    assert step is not None
    entry = entries.get(step)
    if entry is None or entry.manifest_sha256 != sha256_file(folder / MANIFEST_FILE):
        raise GateError(
            "this checkpoint is not in the ledger: it was made or changed after the training",
            where=str(folder),
            hint=RESTORE,
        )
    return step


def _commitment(project: Project, result: Run) -> Commitment:
    phase, seal = _recorded(project, result)
    commit = _commit(project, phase) if phase is not None else None
    end = result.ledger.model_dump() if result.ledger else None
    return Commitment(phase, commit, digest({"commit": commit, "record": seal, "ledger": end, "run": result.id}))


def _recorded(project: Project, result: Run) -> tuple[str, str] | tuple[None, None]:
    """Return the last phase whose record holds a run, and the record's seal; two None where none does.

    Raises:
        GateError: The record has other values than the result.
    """
    for phase, record, run in sound_runs(project):
        if run.id != result.id:
            continue
        # A phase takes over a run of an earlier one that has its config: its record then names that phase in place of the first.
        names = [name for name in Run.model_fields if name != "phase"]
        if other := [name for name in names if getattr(run, name) != getattr(result, name)]:
            message = f"the record of {phase} has other values of run {result.id} than its result: {', '.join(other[:5])}"
            raise GateError(message, where=RECORD_FILE, hint=f"mltrainer gate check {phase}")
        return phase, record.seal
    return None, None


def _commit(project: Project, phase: str) -> str | None:
    """Return the commit that holds a phase's record as it is here; None if none does."""
    path = project.phase_dir(phase) / RECORD_FILE
    committed = committed_file(project.root, project.relative(path))
    return committed.commit if committed is not None and committed.content == path.read_bytes() else None
