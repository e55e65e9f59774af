"""Every checkpoint of a project: its origin, its references, and whether it is unchanged.

Read from manifests, run results and phase records; needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.manifest import (
    MANIFEST_FILE,
    START_FOLDER,
    faults,
    file_fault,
    folders,
    intact_manifest,
    read_manifest,
    step_of,
)
from mltrainer.checkpointing.tensors import (
    WEIGHTS_FILE,
    checkpoint_weights_tree_sha256,
    file_weights_sha256,
    file_weights_tree_sha256,
)
from mltrainer.errors import GateError, InputError, MachineError
from mltrainer.records.checkpoint import BoundFiles, Manifest, RunCheckpoints
from mltrainer.records.job import ExportJob
from mltrainer.records.partial import partial
from mltrainer.records.run import CheckpointRow
from mltrainer.reproducibility import fingerprint
from mltrainer.workspace import MODEL_FOLDER, PHASES, Project, read_if_whole, sha256_file

PRUNED_FILE = "pruned.json"  # in a run's folder: the checkpoints of its result that were removed on purpose
DIGESTS = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "numerics_class")

_RUN = re.compile(r"^[0-9a-f]{12}$")  # runs that were set aside carry a suffix, and are left alone


@dataclass(frozen=True)
class Listed:
    """A checkpoint of a run; the manifest's values are None if it cannot be read.

    Attributes:
        run: The run.
        step: The optimizer step after which it was saved.
        path: Its folder, relative to the project.
        parent: The run that its run follows, or None.
        roles: Why the run kept it.
        phases: The phases whose record refers to it.
        epoch: The epoch that contains the step.
        metrics: Those of the evaluation at that step.
        size: Bytes of its files of state.
        contract: The digest of the inputs that determine the run's bits.
        fault: Why its manifest cannot be read, or None.
    """

    run: str
    step: int | None
    path: str
    parent: str | None
    roles: list[str]
    phases: list[str]
    epoch: int | None = None
    metrics: dict[str, Any] | None = None
    size: int | None = None
    contract: dict[str, str] = field(default_factory=dict)
    fault: str | None = None

    def written(self) -> dict[str, Any]:
        """Return it as `checkpoints list --json` prints it."""
        shown = {name: value for name, value in vars(self).items() if name != "contract"}
        return {**shown, **{name: self.contract.get(name) for name in DIGESTS}}


@dataclass(frozen=True)
class Verified:
    """A checkpoint, or the delivered model, that was hashed again.

    Attributes:
        path: Its folder, relative to the project.
        reason: Each file that differs, with the expected and the found digest; None if none does.
    """

    path: str
    reason: str | None

    @property
    def is_intact(self) -> bool:
        """Whether it is unchanged."""
        return self.reason is None

    def written(self) -> dict[str, Any]:
        """Return it as `checkpoints verify --json` prints it."""
        return {**vars(self), "ok": self.is_intact}


def checkpoints(project: Project, run: str | None = None) -> list[Listed]:
    """Return each checkpoint of a run, or of all runs, by run and step."""
    references = _references(project)
    return [
        _listed(project, folder.name, checkpoint, recorded, references)
        for folder in _run_folders(project, run)
        for recorded in [_recorded(folder)]
        for checkpoint in folders(folder / "checkpoints")
    ]


def _listed(project: Project, run: str, folder: Path, recorded: RunCheckpoints, references: dict[str, set[str]]) -> Listed:
    step, path = step_of(folder), project.relative(folder)
    roles = next((row.roles for row in recorded.checkpoints if row.step == step), [])
    phases = [phase for phase in PHASES if path in references[phase]]
    try:
        manifest = read_manifest(folder)
    except (GateError, MachineError) as error:
        return Listed(run, step, path, recorded.parent, roles, phases, fault=error.message)
    size = sum(row.size for row in manifest.files)
    return Listed(run, step, path, recorded.parent, roles, phases, manifest.epoch, manifest.metrics, size, manifest.contract)


def verify(project: Project, run: str | None = None) -> list[Verified]:
    """Hash every file of every checkpoint again, and compare with the manifests and with the runs' results.

    The delivered model is compared with finalization's record, its weights with those that were measured. A checkpoint that a
    result names and that is gone is returned, too.

    Raises:
        InputError: There is no such run.
    """
    rows = []
    for folder in _run_folders(project, run):
        listed = {row.path: row for row in _recorded(folder).checkpoints if row.path not in pruned(folder)}
        present = {project.relative(path): path for path in folders(folder / "checkpoints")}
        for path in sorted(set(listed) | set(present)):
            rows.append(Verified(path, _joined(_reasons(project, folder.name, present.get(path), listed.get(path)))))
    return [*rows, *_delivered(project, run)]


def _joined(reasons: Iterable[str]) -> str | None:
    return "; ".join(reasons) or None


def _delivered(project: Project, run: str | None) -> list[Verified]:
    """Return the delivered model, if its weights are here, compared with the measured files and weights."""
    folder = project.phase_dir("finalization") / MODEL_FOLDER
    evidence = _bound(project, "finalization").evidence
    if evidence.delivered_sha256 is None or run not in (None, evidence.run.id) or not (folder / WEIGHTS_FILE).is_file():
        return []
    try:
        reasons = [fault for row in evidence.model_files if (fault := _file_fault(project.root / row.path, row.sha256))]
        reasons += _weights_fault(folder / WEIGHTS_FILE, evidence.delivered_sha256, evidence.delivered_tree_sha256)
    except TypeError:
        return []  # a damaged record is the gate's to report
    return [Verified(project.relative(folder), _joined(reasons))]


def _file_fault(path: Path, expected: str) -> str | None:
    found = sha256_file(path) if path.is_file() else "none"
    return None if found == expected else f"{path.name}: expected sha256 {expected[:12]}, found {found[:12]}"


def _weights_fault(path: Path, expected: str, expected_tree: str | None) -> list[str]:
    try:
        weights = file_weights_sha256(path)
        tree = None if expected_tree is None else file_weights_tree_sha256(path)
    except InputError as error:
        return [f"{path.name}: {error.message}"]
    pairs = ((expected, weights), (expected_tree, tree))
    return [f"{path.name}: expected weights of sha256 {one:.12}, found {other:.12}" for one, other in pairs if one != other]


def _reasons(project: Project, run: str, folder: Path | None, listed: CheckpointRow | None) -> list[str]:
    """Return one checkpoint's faults; `listed` is its row in the run's result."""
    if folder is None:
        return [f"the result of run {run} names it, but it is not here"]
    reasons = faults(folder)
    if not reasons and (other := read_manifest(folder).run) not in (None, run):
        reasons.append(f"it belongs to run {other}, not to {run}")
    for row in listed.files if listed else []:
        path = project.root / row.path
        if path.parent == folder and (fault := file_fault(path, row)) and not any(f.startswith(f"{path.name}:") for f in reasons):
            reasons.append(f"{path.name}: the run's result {fault}")
    return reasons or tree_faults(project.runs_dir / run / fingerprint.CHAIN_FILE, folder)


def tree_faults(chain: Path, folder: Path) -> list[str]:
    """Return the faults of a manifest's tree digest of the weights, compared with the weights and with the chain."""
    manifest = read_manifest(folder)
    recorded, reasons = manifest.weights_tree_sha256, []
    if recorded is not None and (weights := checkpoint_weights_tree_sha256(folder, trained=True)) != recorded:
        reasons.append(f"{MANIFEST_FILE}: expected weights of sha256 {recorded[:12]} over chunks, found {weights[:12]}")
    if chain.is_file() and (noted := fingerprint.trees_of(fingerprint.read(chain)).get(manifest.step)) != recorded:
        reasons.append(f"{MANIFEST_FILE}: weights_tree_sha256 is {recorded}, the chain has {noted} after step {manifest.step}")
    return reasons


def _run_folders(project: Project, run: str | None) -> list[Path]:
    if run is None:
        return sorted(path for path in project.runs_dir.glob("*") if _RUN.match(path.name) and path.is_dir())
    folder = project.runs_dir / run
    if not _RUN.match(run) or not folder.is_dir():
        raise InputError.unknown(
            "run", run, [path.name for path in _run_folders(project, None)], hint="list them with `mltrainer runs list`"
        )
    return [folder]


def _recorded(folder: Path) -> RunCheckpoints:
    """Return the checkpoints of a run's result, or its job's parent if it has not ended; empty if neither can be read."""
    return partial(RunCheckpoints, _json(folder / "result.json") or _json(folder / "job.json"))


def pruned(folder: Path) -> set[str]:
    """Return the checkpoints of a run that were removed on purpose and are not here, relative to the project."""
    noted = _json(folder / PRUNED_FILE).get("checkpoints")
    paths = {path for path in noted if isinstance(path, str)} if isinstance(noted, list) else set()
    return {path for path in paths if not (folder / "checkpoints" / path.rpartition("/")[2]).exists()}


def _json(path: Path) -> dict[str, Any]:
    try:
        return read_if_whole(path)
    except OSError:
        return {}  # a damaged record is the gate's to report


def _bound(project: Project, phase: str) -> BoundFiles:
    return partial(BoundFiles, _json(project.phase_dir(phase) / "record.json"))


def _references(project: Project) -> dict[str, set[str]]:
    """Return, for each phase, the folders of its record's bound files; empty without a record."""
    return {phase: {str(row.path).rpartition("/")[0] for row in _bound(project, phase).inputs} for phase in PHASES}


def protected_steps(project: Project, run: str) -> set[int]:
    """Return the steps of a run's checkpoints that are never deleted, since a phase's record, a fork or an export names them."""
    paths = set().union(*_references(project).values(), _exported(project))
    existing = folders(project.runs_dir / run / "checkpoints")
    named = {path for path in existing if project.relative(path) in paths}
    return {step for path in named if (step := step_of(path)) is not None} | _forked(project, run)


def _exported(project: Project) -> set[str]:
    """Return the exported checkpoints, the last one of each folder that was written."""
    return {str(partial(ExportJob, _json(path)).checkpoint) for path in project.state_dir.glob("exports/*/job.json")}


def _forked(project: Project, run: str) -> set[int]:
    """Return the steps of a run at which other runs begin."""
    return {manifest.step for manifest in _starts(project) if manifest.run == run}


def _starts(project: Project) -> Iterator[Manifest]:
    """Yield the manifests of the checkpoints at which forks begin."""
    starts = (path for folder in project.runs_dir.glob(f"*/{START_FOLDER}") for path in folders(folder))
    yield from (manifest for path in starts if (manifest := intact_manifest(path)) is not None)


def referred_runs(project: Project) -> set[str]:
    """Return the runs with files in a phase's record, with an export, or with a checkpoint at which a fork begins."""
    bound = {str(row.path) for phase in PHASES for row in _bound(project, phase).inputs}
    runs_dir = f"{project.relative(project.runs_dir)}/"
    named = {path.removeprefix(runs_dir).partition("/")[0] for path in bound | _exported(project) if path.startswith(runs_dir)}
    return named | {manifest.run for manifest in _starts(project) if manifest.run is not None}
