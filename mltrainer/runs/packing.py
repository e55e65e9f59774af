"""The runs that may be packed: ended ones without references, such as the trials of a study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.checkpointing.inventory import referred_runs
from mltrainer.checkpointing.manifest import START_FOLDER
from mltrainer.leftovers import RUN_LOCK
from mltrainer.reproducibility.evidence import RESULT_FILE, TEST_FILE
from mltrainer.reproducibility.packs import MOST, below, is_plain, pack
from mltrainer.runs.find import recorded_runs, runs_here
from mltrainer.workspace import Project, is_locked, is_sealed, locked_project, read_if_whole

# The count of the test split's openings needs the first; the protection of checkpoints at which forks begin needs the other.
_KEEPS = (TEST_FILE, START_FOLDER)


@dataclass(frozen=True)
class Packed:
    """Runs whose folders became one file.

    Attributes:
        pack: The file, relative to the project.
        runs: Their ids.
        files: The number of files in their folders.
        folder_bytes: The bytes of these files.
        pack_bytes: The bytes of the pack.
    """

    pack: str
    runs: list[str]
    files: int
    folder_bytes: int
    pack_bytes: int

    def written(self) -> dict[str, Any]:
        """Return it as `runs pack --json` prints it."""
        return asdict(self)


def pack_runs(project: Project) -> Iterator[Packed]:
    """Pack the folders of all ended runs without references, the oldest first; yield each pack once it is written.

    Raises:
        InUseError: A phase runs.
        MachineError: A pack cannot be written.
    """
    with locked_project(project):
        runs = packable(project)
        yield from (_packed(project, runs[start : start + MOST]) for start in range(0, len(runs), MOST))


def packable(project: Project) -> list[str]:
    """Return the ended runs without a record, export or fork that refers to them and without a test opening, the oldest first."""
    named = referred_runs(project) | set(recorded_runs(project))
    ended = [run for run in runs_here(project) if run not in named and may_go(project.runs_dir / run)]
    return [run for run in ended if is_plain(project.runs_dir / run)]


def may_go(folder: Path) -> bool:
    """Return True for a run that has ended and is counted by none of its files."""
    has_ended = is_sealed(read_if_whole(folder / RESULT_FILE)) and not is_locked(folder / RUN_LOCK)
    return has_ended and not any((folder / name).exists() for name in _KEEPS)


def _packed(project: Project, runs: list[str]) -> Packed:
    sizes = [path.stat().st_size for run in runs for path in below(project.runs_dir / run) if path.is_file()]
    path = pack(project.runs_dir, runs)
    return Packed(project.relative(path), runs, len(sizes), sum(sizes), path.stat().st_size)
