"""The steps that a training shares with an earlier run, which saw only later the samples that are forgotten now.

Both have the same order of slots, and the same bits up to the first slot that one of them has empty and the other has not. The
earlier run's last checkpoint before it is then one of this training, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.format import Tree, load, save, snapshot
from mltrainer.checkpointing.ledger import LEDGER_FILE
from mltrainer.checkpointing.manifest import MANIFEST_FILE, faults, folders, read_manifest
from mltrainer.checkpointing.retention import to_delete
from mltrainer.checkpointing.weights import weights_tree_sha256
from mltrainer.configs.forgotten import OF_SAMPLES
from mltrainer.errors import MltrainerError
from mltrainer.follow.splits import read_splits
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.job import TrainingJob
from mltrainer.reproducibility import fingerprint, seeds
from mltrainer.reproducibility.evidence import JOB_FILE
from mltrainer.reproducibility.fingerprint import CHAIN_FILE, Head
from mltrainer.tasks.opening import OpenTask, open_task
from mltrainer.tasks.samples import Samples
from mltrainer.trainers.native.data.addresses import Plan
from mltrainer.trainers.native.recording import GRADIENTS_FILE
from mltrainer.workspace import Project, machine_faults, read_json, sha256_file, write_atomic


class NewRun(Protocol):
    """The attributes of a session that are asked of a run that begins."""

    root: Path
    folder: Path
    job: Any
    config: Any
    task: Any
    plan: Any
    model: Any
    trainer: Any
    signals: Any
    checkpoints: Any
    contract: Any
    events: Any


def take_over(session: NewRun) -> None:
    """Give a new run the checkpoints of an earlier one that are its own as well; a note says which, or why there are none."""
    for run in session.job.earlier:
        folder = Project(session.root).runs_dir / run
        try:
            why = _taken_over(session, folder)
        except MltrainerError as error:
            why = str(error)
        if why is None:
            return
        session.events.send("note", text=f"no checkpoint of run {run} is used: {why}")


def _taken_over(session: NewRun, folder: Path) -> str | None:
    """Copy a run's checkpoints that serve; return the reason if none does."""
    job = TrainingJob.model_validate(read_json(folder / JOB_FILE))
    if session.config.strategies:
        return "a strategy may have read the samples before the first step"
    if session.config.goes_back:
        return "a later spike, which may be one of the forgotten samples, may have left steps out"
    with seeds.kept():
        seeds.seed_everything(seeds.key(job.config.data_seed, "task"))
        earlier = open_task(job.config, session.root)
    try:
        if (fitted := session.task.fitted()) is None or fitted != earlier.fitted():
            return "what was fitted on the training samples, such as a mean, may be another without the forgotten ones"
        # From its first split on, it computed its samples in other micro-batches than the new run, which has none.
        last = min([last_shared_step(session, earlier), *(split.step - 1 for split in read_splits(folder))])
    finally:
        earlier.close()
    found = [path for path in folders(folder / "checkpoints") if _serves(session, path, last, job, earlier.data_sha256)]
    if not found:
        return f"it has none of the same contract up to step {last}, after which its samples or its numbers differ"
    return _copied(session, folder, found)


def last_shared_step(session: NewRun, earlier: OpenTask) -> int:
    """Return the last step up to which a training and an earlier one have the same samples, and measure the same ones."""
    plan, new, old = session.plan, session.task.split("train"), earlier.split("train")
    last = first_other_step(plan, session.config.seed, new, old) - 1
    measured = (len(session.task.split("validation")), session.signals.watch.samples)
    if any(not np.array_equal(new.ids[new.spread(count)], old.ids[old.spread(count)]) for count in measured):
        # An evaluation measures and observes some training samples, and its numbers are part of the run.
        last = min(last, session.config.evaluate.interval(plan.steps_per_epoch) - 1)
    return last


def first_other_step(plan: Plan, seed: int, one: Samples, other: Samples) -> int:
    """Return the first step, from 1, with a slot that is empty in one of two trainings alone."""
    is_other = _is_filled(one) != _is_filled(other)
    # In the first epoch, as each slot has its place in every epoch.
    places = np.flatnonzero(is_other[seeds.epoch_order(seed, 0, plan.samples)])
    return int(places[0]) // plan.step_samples + 1 if len(places) else plan.steps + 1


def _is_filled(samples: Samples) -> np.ndarray:
    return np.ones(len(samples), dtype=bool) if samples.filled is None else samples.filled >= 0


def _serves(session: NewRun, path: Path, last: int, job: TrainingJob, data_sha256: str) -> bool:
    """Return True if a checkpoint is intact, of a shared step, and of the contract of its run and of this one."""
    if faults(path):
        return False
    manifest = read_manifest(path)
    made = manifest.contract
    is_own = all(made.get(key) == value for key, value in {**job.contract, "data_sha256": data_sha256}.items())
    others = [key for key in {**made, **session.contract} if key not in OF_SAMPLES]
    return manifest.step <= last and is_own and all(made.get(key) == session.contract.get(key) for key in others)


def _copied(session: NewRun, folder: Path, found: list[Path]) -> str | None:
    """Write the files of a beginning into a run's folder, the checkpoints last; return the reason if the chain is another's."""
    last, _ = load(found[-1], None)
    head = Head(**last["chain"])
    lines = fingerprint.read(folder / CHAIN_FILE)[: head.entries]
    first = weights_tree_sha256(session.model.state_dict(), threads=session.config.threads)
    own = fingerprint.weights_entry(0, first, is_tree=True)
    if fingerprint.verify(lines, CHAIN_FILE) != head or lines[0].rpartition(" ")[0] != own:
        return "its chain does not lead from this training's first weights to its checkpoint"
    write_atomic(session.folder / CHAIN_FILE, "".join(f"{line}\n" for line in lines).encode())
    _copy_gradients(folder, session.folder, last["step"] * len(session.trainer.parameters) * 4)
    (session.folder / LEDGER_FILE).unlink(missing_ok=True)
    for path in _kept(session, found):
        _save(session, *load(path, None))
    return None


def _kept(session: NewRun, found: list[Path]) -> list[Path]:
    """Return the checkpoints that the run would still have at the last of them."""
    config, manifests = session.config, {path: read_manifest(path) for path in found}
    gone = to_delete([*manifests.values()], config.metric, config.checkpoint, session.checkpoints.segment_ends)
    return [path for path, manifest in manifests.items() if manifest.step not in gone]


def _copy_gradients(folder: Path, own: Path, size: int) -> None:
    if (folder / GRADIENTS_FILE).exists():
        with machine_faults(str(own)), open(folder / GRADIENTS_FILE, "rb") as file:
            write_atomic(own / GRADIENTS_FILE, file.read(size))


def _save(session: NewRun, tree: Tree, manifest: Manifest) -> None:
    """Save a checkpoint under this run's contract; its manifest still names the run that made it."""
    kept = {key: value for key, value in manifest.written().items() if key not in ("schema", "files", "seal")}
    tree["signals"]["margins"] = session.signals.margins.of(tree["signals"]["margins"])
    path = session.checkpoints.path(manifest.step)
    save(path, snapshot(tree), {**kept, "contract": session.contract})
    entry = ledger.Entry(manifest.step, Head(**tree["chain"]), sha256_file(path / MANIFEST_FILE))
    ledger.note(session.folder / LEDGER_FILE, entry)
