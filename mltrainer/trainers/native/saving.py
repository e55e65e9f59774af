"""A run's checkpoints: snapshots taken in the training thread, written in a second one, kept by the policy."""

from __future__ import annotations

import enum
import functools
import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.format import Rows, Snapshot, Tree, load, save, save_rows, snapshot
from mltrainer.checkpointing.manifest import (
    MANIFEST_FILE,
    ROWS_FILE,
    discard,
    folder_name,
    folders,
    intact_manifest,
    newest_intact,
    step_of,
    sweep,
)
from mltrainer.checkpointing.ranking import best_row
from mltrainer.checkpointing.retention import roles, segment_ends, to_delete
from mltrainer.checkpointing.writer import Writer
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import FaultAt, GateError
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.common import FileRow
from mltrainer.records.run import CheckpointRow
from mltrainer.reproducibility.fingerprint import CHAIN_FILE, Head
from mltrainer.tools.program import Events
from mltrainer.trainers.native.data.addresses import Plan
from mltrainer.trainers.native.ranks import Ranks
from mltrainer.trainers.native.recording import GRADIENTS_FILE, EvaluationRow
from mltrainer.workspace import machine_faults, read_json, sha256_file, sync, write_json

ROWS_FOLDER = "rows"  # in a run's folder: other processes' rows of checkpoints that the first process writes
POLL_S = 0.01
CONTRACT = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "numerics_class")


class Due(enum.Enum):
    """The reason for which a checkpoint is due."""

    KEPT = "by the calendar of epochs, or because the run ends or stops here"
    BEST = "it is the best so far"
    GO_ON = "the steps or minutes between two have passed: an interrupted run continues from here"


@dataclass(frozen=True)
class _Pending:
    """A checkpoint that waits for the writer; one that is kept only as the best may be replaced by a better one."""

    path: Path
    step: int
    chain: Head
    copied: Snapshot
    manifest: dict[str, Any]
    gives_way: bool


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: The folder of the checkpoints, with one folder per step.
        config: The run's config, with metric and policy.
        plan: The run's plan, with the place of each step.
        contract: The facts that decide the run's bits; recorded in each manifest, compared on resume.
        run: The run's id.
        protected: The steps whose checkpoints are never deleted, because other records name them.
        ranks: The processes that train together.
        is_shared: Whether each of them has only a part of the state.
        keeps: Whether checkpoints are written at all.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainingConfig,
        plan: Plan,
        contract: dict[str, Any],
        run: str,
        protected: Collection[int],
        ranks: Ranks,
        is_shared: bool,
        keeps: bool,
    ) -> None:
        self.folder, self.config, self.plan, self.contract, self.run = folder, config, plan, contract, run
        every = config.evaluate.interval(plan.steps_per_epoch)
        evaluations = [*range(every, plan.steps, every), plan.steps]
        self.segment_ends = segment_ends(plan.steps, config.checkpoint.segments, evaluations)
        self._protected, self._ranks, self._is_shared, self.keeps = self.segment_ends | {*protected}, ranks, is_shared, keeps
        self._writer = Writer()
        self._pending: _Pending | None = None
        self._manifests: dict[Path, Manifest | None] = {}  # of the folders that existed after the last save

    # --- saving ---

    def submit(self, tree: Tree, step: int, history: list[EvaluationRow], due: Due, weights_tree: str | None = None) -> bool:
        """Copy the state and have it written, without waiting for the disk; return whether it will be.

        A checkpoint that is only for resuming is skipped if the disk lags behind: two newer than the last one are being written.

        Args:
            tree: The state.
            step: The step that the state follows.
            history: The history so far.
            due: The reason for the checkpoint.
            weights_tree: The weights' tree digest, as in the chain after this step; None if the chain has none.
        """
        if not self.keeps:
            return False
        if not self._ranks.writes:
            if self._is_shared:
                self._submit_rows(tree, step)
            return False
        # Before the state is copied: the copy of a skipped checkpoint would cost a step its time.
        if due is Due.GO_ON and not self._has_room():
            return False
        row = history[-1] if history and history[-1].step == step else None
        best = best_row(history, self.config.metric)
        is_best = best is not None and best.step == step
        manifest = self._manifest(step, row, weights_tree)
        pending = _Pending(self.path(step), step, Head(**tree["chain"]), snapshot(tree), manifest, gives_way=due is Due.BEST)
        # A waiting best one is written first unless this one is better: training waits for the disk rather than losing it.
        if self._pending is not None and not (is_best and self._pending.gives_way):
            self._hand_over(self._pending)
        self._pending = None
        if self._writer.has_room or due is Due.KEPT:
            self._hand_over(pending)
        else:
            self._pending = pending
        return True

    def _has_room(self) -> bool:
        """Return True if a checkpoint can be written at once, after passing on the best one that waits here, if there is one."""
        if self._pending is not None and self._writer.has_room:
            self._hand_over(self._pending)
            self._pending = None
        return self._pending is None and self._writer.has_room

    def _is_periodic(self, step: int) -> bool:
        """Return True if a step's checkpoint is kept for later: by the calendar of epochs or steps, not by the clock."""
        policy, (epoch, rest) = self.config.checkpoint, divmod(step, self.plan.steps_per_epoch)
        by_steps = policy.every_n_steps is not None and step % policy.every_n_steps == 0
        return by_steps or (rest == 0 and epoch % policy.every_n_epochs == 0)

    def _manifest(self, step: int, row: EvaluationRow | None, weights_tree: str | None) -> dict[str, Any]:
        return {
            "run": self.run,
            "step": step,
            "epoch": self.plan.place(step)[0] + 1,
            "metric": None if row is None else row.validation[self.config.metric.name],
            "metrics": {} if row is None else row.validation,
            "periodic": self._is_periodic(step),
            "contract": self.contract,
            **({"weights_tree_sha256": weights_tree} if weights_tree else {}),
        }

    def _submit_rows(self, tree: Tree, step: int) -> None:
        """Write the rows of a state that only this process has; the process that writes the rest adds them."""
        copied = snapshot(_rows_alone(tree))
        self._writer.submit(functools.partial(_write_rows, self._rows_folder(step), self._ranks.rank, copied))

    def _hand_over(self, pending: _Pending) -> None:
        self._writer.submit(functools.partial(self._write, pending))

    def _write(self, pending: _Pending) -> None:
        # In this order: the files that the checkpoint continues, the checkpoint, its line, and only then the deletions.
        self._sync_recorded()
        others = functools.partial(_rows_of_others, self._rows_folder(pending.step), self._ranks.size)
        save(pending.path, pending.copied, pending.manifest, others)
        ledger.note(self._ledger, _entry(pending.path, pending.step, pending.chain))
        self._tidy(pending.path)

    def _rows_folder(self, step: int) -> Path:
        return self.folder.parent / ROWS_FOLDER / folder_name(step)

    def _sync_recorded(self) -> None:
        """Sync the files that a checkpoint continues, chain and gradient norms, before each save and at the end.

        They are appended to without waiting: after a power cut a checkpoint might exist without the lines that it continues.
        """
        with machine_faults(str(run := self.folder.parent)):
            for name in (CHAIN_FILE, GRADIENTS_FILE):
                if (run / name).exists():
                    sync(run / name)
            sync(run)

    def _tidy(self, newest: Path) -> None:
        """Delete checkpoints that the policy does not keep; runs in the writer's thread, after each save.

        The manifests of earlier saves are not read again: while this thread parses them, the training thread waits.
        """
        # Also rows of checkpoints that a better one replaced; the other processes write later rows after this checkpoint.
        for folder in folders(self.folder.parent / ROWS_FOLDER):
            if folder.name <= newest.name:
                shutil.rmtree(folder)
        known = {**self._manifests, newest: None}  # the newest may have replaced one of the same step
        self._manifests = {folder: known.get(folder) or intact_manifest(folder) for folder in folders(self.folder)}
        existing = [*filter(None, self._manifests.values())]
        spikes, is_over = self.config.spikes, step_of(newest) == self.plan.steps
        before = spikes.before if spikes is not None and spikes.goes_back and not is_over else None
        for step in to_delete(existing, self.config.metric, self.config.checkpoint, self._protected, before):
            discard(self.path(step))

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Wait until everything submitted, and the whole chain, is on the disk, and end the writer.

        Raises:
            MachineError: The disk is full, or failed.
        """
        if error is None and self._pending is not None:
            self._hand_over(self._pending)
            self._pending = None
        elif error is None:
            # The result, written next, depends on the chain, even if the policy has no checkpoint at the end.
            self._writer.submit(self._sync_recorded)
        self._writer.__exit__(kind, error, trace)

    # --- reading ---

    def path(self, step: int) -> Path:
        """Return a step's folder."""
        return self.folder / folder_name(step)

    def newest(self, events: Events) -> tuple[Tree, Manifest] | None:
        """Return tree and manifest of the newest intact checkpoint; notes name skipped damaged ones.

        Raises:
            GateError: All checkpoints are damaged; nothing restarts from scratch on its own.
        """
        if self._ranks.writes:
            # Leftovers of a killed process, also from before the first checkpoint; until the first step the others wait.
            shutil.rmtree(self.folder.parent / ROWS_FOLDER, ignore_errors=True)
        if not self.folder.is_dir():
            return None
        if self._ranks.writes:
            sweep(self.folder)
        found, skipped = newest_intact(self.folder)
        for row in skipped:
            events.send("note", text=f"passed over a damaged checkpoint, {row.folder.name}: {row.reason}")
        if found is None and skipped:
            reasons = "; ".join(f"{row.folder.name}: {row.reason}" for row in skipped)
            raise GateError(
                f"every checkpoint of run {self.run} is damaged: {reasons}",
                hint=f"remove .mltrainer/runs/{self.run} to train it again from the start",
            )
        return load(found, None) if found is not None else None

    def leave(self, first: int, history: Sequence[EvaluationRow]) -> None:
        """Delete the checkpoints after steps from `first` on, the newest first, and those whose best one is not here any more.

        A process that is killed meanwhile goes on from the newest of the others, and comes to the same spike.

        Args:
            first: The first step that is left out.
            history: The evaluations of the steps that were taken.

        Raises:
            MachineError: One cannot be deleted.
        """
        if not self._ranks.writes:
            return
        existing = {step: folder for folder in folders(self.folder) if (step := step_of(folder)) is not None}
        for step, folder in sorted(existing.items(), reverse=True):
            best = best_row([row for row in history if row.step <= step], self.config.metric)
            if step < first and (best is None or best.step in existing or not self.config.checkpoint.save_best):
                break
            discard(folder)

    @property
    def _ledger(self) -> Path:
        return self.folder.parent / ledger.LEDGER_FILE

    def ledger_end(self) -> Head:
        """Return the end of the ledger; that of an empty one if no checkpoints are written.

        Raises:
            GateError: The ledger was changed.
        """
        return ledger.head(ledger.read(self._ledger) if self.keeps else ())

    def go_on(self, tree: Tree) -> None:
        """Make the ledger end in the checkpoint that the run goes on from.

        Raises:
            GateError: It is not the checkpoint that was saved.
        """
        if self._ranks.writes:
            path = self.path(tree["step"])
            earlier = [step for folder in folders(self.folder) if (step := step_of(folder)) is not None and folder < path]
            ledger.go_on(self._ledger, _entry(path, tree["step"], Head(**tree["chain"])), earlier)

    def refuse_other_contract(self, manifest: Manifest) -> None:
        """Refuse to continue with other code, data, config, environment or numerics.

        Raises:
            GateError: A field differs; with each field's recorded and present value.
        """
        recorded = manifest.contract
        both = ((key, recorded.get(key), self.contract.get(key)) for key in CONTRACT)
        changes = [FaultAt(key, expected, found) for key, expected, found in both if expected != found]
        if changes:
            raise GateError(
                "\n  ".join(["the checkpoint was made under another contract:", *map(str, changes)]),
                hint="restore what changed (threads, instruction set, code, data), or plan again: mltrainer phase run planning",
                faults=changes,
            )

    def load(self, step: int) -> tuple[Tree, Manifest]:
        """Return a step's tree and manifest, verified.

        Raises:
            GateError: A file does not match the manifest.
        """
        return load(self.path(step), None)

    def rows(self, root: Path) -> list[CheckpointRow]:
        """Return the kept checkpoints, none of them verified yet."""
        existing = [*filter(None, map(intact_manifest, folders(self.folder)))]
        named = roles(existing, self.config.metric, self.config.checkpoint)
        return [self._row(row, named[row.step], root) for row in existing]

    def _row(self, manifest: Manifest, names: list[str], root: Path) -> CheckpointRow:
        step, epoch = manifest.step, manifest.epoch
        folder = self.path(step)
        files = [FileRow.of(path, path.relative_to(root).as_posix()) for path in sorted(folder.iterdir())]
        place = folder.relative_to(root).as_posix()
        return CheckpointRow(step=step, epoch=epoch, roles=names, path=place, verified=False, files=files)


def _rows_alone(tree: Any) -> Any:
    """Return a tree with only its rows, each at its place."""
    if isinstance(tree, dict):
        return {key: _rows_alone(value) for key, value in tree.items()}
    return tree if isinstance(tree, Rows) else None


def _write_rows(folder: Path, rank: int, copied: Snapshot) -> None:
    path = folder / ROWS_FILE.format(number=rank)
    row = save_rows(path, copied)
    # Last: it shows the waiting process that the rows are on the disk.
    write_json(path.with_suffix(".json"), row.model_dump())


def _rows_of_others(folder: Path, size: int) -> list[tuple[Path, FileRow]]:
    """Return the row files of all processes but the first, each with its record, once they are written.

    This waits in the writer's thread; if another process dies, the executor ends all.
    """
    paths = [folder / ROWS_FILE.format(number=number) for number in range(1, size)]
    while not all(path.with_suffix(".json").exists() for path in paths):
        time.sleep(POLL_S)
    return [(path, FileRow.model_validate(read_json(path.with_suffix(".json")))) for path in paths]


def _entry(folder: Path, step: int, chain: Head) -> ledger.Entry:
    """Return the ledger's entry of a saved checkpoint."""
    return ledger.Entry(step, chain, sha256_file(folder / MANIFEST_FILE))
