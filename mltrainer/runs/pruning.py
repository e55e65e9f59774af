"""Removal of the checkpoints of ended runs that nothing refers to; their results, logs and chains stay."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.inventory import PRUNED_FILE, protected_steps, pruned
from mltrainer.checkpointing.manifest import folders, step_of
from mltrainer.leftovers import RUN_LOCK
from mltrainer.records.partial import partial
from mltrainer.records.run import TrainingResult
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.reproducibility.packs import file_sizes, remove_folder
from mltrainer.runs.deleting import references
from mltrainer.runs.find import runs_here
from mltrainer.runs.packing import may_go
from mltrainer.workspace import Project, locked, locked_project, read_if_whole, write_json


@dataclass(frozen=True)
class Pruned:
    """A checkpoint that was removed, or would be.

    Attributes:
        path: Its folder, relative to the project.
        bytes: The bytes of its files.
    """

    path: str
    bytes: int

    def written(self) -> dict[str, Any]:
        """Return it as `checkpoints prune --json` prints it."""
        return asdict(self)


def prune(project: Project, *, only_look: bool = False) -> list[Pruned]:
    """Remove the checkpoints of ended runs that nothing refers to.

    A run's folder notes those that were removed, so that they are not taken for lost. A phase that needs such a run trains it
    again, in the same bits.

    Args:
        project: The project.
        only_look: Whether nothing is removed.

    Raises:
        InUseError: A phase runs.
        MachineError: A checkpoint cannot be removed.
        InputError: Git cannot say what the branches hold.
    """
    with locked_project(project):
        ended = [run for run in runs_here(project) if _may_go(project.runs_dir / run)]
        named = references(project, ended)
        found = [path for run in ended if run not in named for path in _unprotected(project, run)]
        rows = [Pruned(project.relative(path), sum(file_sizes(path))) for path in found]
        for path in () if only_look else found:
            _remove(project, path)
    return rows


def _may_go(folder: Path) -> bool:
    """Return True for a run that has ended, is counted by none of its files, and kept no checkpoints for an audit."""
    return may_go(folder) and not partial(TrainingResult, read_if_whole(folder / RESULT_FILE)).saved.segments


def _unprotected(project: Project, run: str) -> list[Path]:
    kept = protected_steps(project, run)
    return [path for path in folders(project.runs_dir / run / "checkpoints") if step_of(path) not in kept]


def _remove(project: Project, path: Path) -> None:
    """Note a checkpoint's removal, and remove it; in this order, as one that is gone without a note is taken for lost."""
    folder = path.parent.parent
    with locked(folder / RUN_LOCK, f"run {folder.name}"):
        write_json(folder / PRUNED_FILE, {"checkpoints": sorted({*pruned(folder), project.relative(path)})})
        remove_folder(path)
