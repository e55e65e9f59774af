"""Engines: other machines, on which a command runs as a job; each engine is one file.

A job is started through the engine and followed through files in a folder that all machines share. The engine is asked only
whether it still has the job: so a lost job (its machine died, it was preempted, it left the queue) differs from one that ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from mltrainer.errors import MachineError

Sight = Literal["waiting", "running", "ended", "failed", "died", "lost"]
# How variables begin that are of this process's machine, or of a job that it runs in itself.
OF_THIS_MACHINE = (
    *("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "RAY_", "PMI_", "PMIX_"),
    *("CUDA_VISIBLE_DEVICES", "HOSTNAME", "TMPDIR"),
)
KEPT_VARIABLES = ("SLURM_CONF",)


class EngineAwayError(MachineError):
    """An engine does not answer, or takes no job now; later it may."""


@dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command for another machine.

    Attributes:
        name: The job's name, as people see it in a queue.
        arguments: The program and its arguments, which must be there too.
        folder: The current folder, which all machines share.
        environment: The variables that the command is given.
        log: The file in a shared folder that receives the command's output.
        cores: The number of CPU cores that the command needs.
        gpus: The number of GPUs that the command needs.
    """

    name: str
    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    cores: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class Sighting:
    """A job's state, as its engine reports it.

    Attributes:
        state: `failed` ended by itself with an error; `died` used more than it may; `lost` was taken away by the engine.
        why: The state's reason in words; for a job in the queue, the reason that it waits.
        machine: The machine where the job runs or ran; empty where unknown.
    """

    state: Sight
    why: str = ""
    machine: str = ""


class Engine(Protocol):
    """Machines on which jobs run."""

    name: str

    def begin(self, command: RemoteCommand) -> str:
        """Start a command as a job and return the job's id.

        Raises:
            InputError: The engine refuses such a job, or is not here.
            EngineAwayError: It does not answer, or takes no more jobs now.
        """

    def look(self) -> Mapping[str, Sighting]:
        """Return the jobs that the engine knows, by id; one that it has begun and does not know any more is lost.

        Raises:
            EngineAwayError: It does not answer.
        """

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs, also those of an earlier process; unknown ones have ended."""

    def close(self) -> None:
        """End all jobs that this process has begun, and let go of the engine."""


def portable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are valid on another machine too."""
    return {name: value for name, value in environment.items() if name in KEPT_VARIABLES or not name.startswith(OF_THIS_MACHINE)}
