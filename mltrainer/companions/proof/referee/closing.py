"""Tools whose processes are closed off: they see the recipe and the data, and no record, environment, network or other file."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError, MachineError
from mltrainer.executors.sandbox import CPU_FILES, ClosedOff, Isolation, Limits, interpreter_paths, unavailable
from mltrainer.runs.launcher import Placement, Tell, Tools, tools_of
from mltrainer.runs.recorded import keep_out_of_git
from mltrainer.workspace import Project, machine_faults

# Without a limit of time: a training takes what it takes. The others are those of a machine that never fills up.
LIMITS = Limits(seconds=0, memory=1 << 42, output=1 << 46)
ASK = "ask the author: the project's own code left it so"
RECORDS = ("phases", ".git")  # below a project: reports, records and their history


def why_open(config: TrainingConfig, is_allowed: bool) -> str | None:
    """Return the reason that a training cannot be closed off here; None if it can.

    Args:
        config: The author's config.
        is_allowed: Whether the referee lets it run without.

    Raises:
        MachineError: It cannot be closed off, and the referee does not allow that.
    """
    reason = unavailable() if config.device == "cpu" else f"a process that is closed off reaches no {config.device}"
    if reason is not None and not is_allowed:
        fault = f"the training cannot be closed off here ({reason}): the author's code could read your files and use the network"
        raise MachineError(fault, hint="read the author's code, then add --not-closed-off, on a machine with nothing of value")
    return reason


@contextlib.contextmanager
def closed_tools(project: Project, tell: Tell, visible: Sequence[Path], is_closed: bool) -> Iterator[Tools]:
    """Yield a project's tools, each in one process, closed off where that is asked for; a process leaves only regular files.

    Args:
        project: The clean copy.
        tell: The function that shows an event.
        visible: Files and folders that the processes see beside the project.
        is_closed: Whether they are closed off.
    """
    keep_out_of_git(project)
    executor = ClosedOff(_isolation(project, visible), LIMITS) if is_closed else None
    with tools_of(project, tell, Placement(processes=1), executor) as tools:

        def launch(*arguments: Any, **named: Any) -> None:
            try:
                tools.launch(*arguments, **named)
            finally:
                remove_links(project.state_dir)  # before anything that is not closed off opens a path in it

        yield replace(tools, launch=launch, forks=None)


def remove_links(folder: Path) -> None:
    """Remove from a folder that the author's code wrote to all but regular files, so that no path in it leads elsewhere.

    Raises:
        GateError: It cannot be searched.
    """
    left = [folder]
    try:
        while left:
            inner = left.pop()
            inner.chmod(0o700)  # code can take away the right to list a folder, and leave the right to open what is in it
            for path in inner.iterdir():
                mode = path.lstat().st_mode
                if stat.S_ISDIR(mode):
                    left.append(path)
                elif not stat.S_ISREG(mode):
                    path.unlink()
    except OSError as error:
        what = f"the training left a folder that cannot be searched: {error.strerror}"
        raise GateError(what, where=folder.name, hint=ASK) from error


def moved(project: Project, checkpoint: str, place: Path) -> Path:
    """Return the place of a checkpoint after it was moved to a new folder, where no code of the author's can write.

    Args:
        project: The clean copy.
        checkpoint: The checkpoint's folder, relative to the project, as the author's process named it.
        place: The new folder, which keeps the checkpoint's name.

    Raises:
        GateError: The training has no such checkpoint.
    """
    path = Path(os.path.normpath(project.root / checkpoint))
    if project.runs_dir not in path.parents or not path.is_dir():
        raise GateError(f"the training names a checkpoint that it does not have: {checkpoint}", hint=ASK)
    place.mkdir()
    return path.rename(place / path.name)


def empty_state(project: Project) -> None:
    """Remove all that the processes left, such as tables that the next one would take for those of the data."""
    with machine_faults(str(project.state_dir)):
        shutil.rmtree(project.state_dir)
    keep_out_of_git(project)


def _isolation(project: Project, visible: Sequence[Path]) -> Isolation:
    root = str(project.root)
    return Isolation(
        visible=(*interpreter_paths(), *CPU_FILES, root, *map(str, visible)),
        hidden=tuple(f"{root}/{name}" for name in RECORDS),
        writable=(str(project.state_dir),),
    )
