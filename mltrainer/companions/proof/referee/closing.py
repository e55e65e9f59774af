"""Tools whose processes are closed off: they see the recipe and the data, and no record, environment, network or other file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import MachineError
from mltrainer.executors.sandbox import CPU_FILES, ClosedOff, Isolation, Limits, interpreter_paths, unavailable
from mltrainer.runs.launcher import Placement, Tell, Tools, tools_of
from mltrainer.runs.recorded import keep_out_of_git
from mltrainer.workspace import Project

# Without a limit of time: a training takes what it takes. The others are those of a machine that never fills up.
LIMITS = Limits(seconds=0, memory=1 << 42, output=1 << 46)
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
    """Yield a project's tools, each in one process, closed off where that is asked for.

    Args:
        project: The clean copy.
        tell: The function that shows an event.
        visible: Files and folders that the processes see beside the project.
        is_closed: Whether they are closed off.
    """
    keep_out_of_git(project)
    executor = ClosedOff(_isolation(project, visible), LIMITS) if is_closed else None
    with tools_of(project, tell, Placement(processes=1), executor) as tools:
        yield tools


def _isolation(project: Project, visible: Sequence[Path]) -> Isolation:
    root = str(project.root)
    return Isolation(
        visible=(*interpreter_paths(), *CPU_FILES, root, *map(str, visible)),
        hidden=tuple(f"{root}/{name}" for name in RECORDS),
        writable=(str(project.state_dir),),
    )
