"""Jobs of SLURM, by `sbatch`, `squeue` and `scancel` alone: no package, and no accounting of the cluster, is needed.

The package submitit (1.5.4) was tried in place of this. It hands over functions and results as pickles: what somebody else wrote
into its folder was executed on the job's machine, and on the one that asked for the result. A command that ended with exit code 3
ended the job with 1; without the cluster's accounting a job's state is unknown; and it waits without limit for an `sbatch` that
does not answer.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from mltrainer.configs.launching import Launching
from mltrainer.errors import InputError
from mltrainer.executors.executor import Command, EngineAwayError, RemoteCommand, Sight, Sighting
from mltrainer.executors.local import Ended, answered

ANSWER_S = 60.0  # a busy controller takes its time; one that does not answer by then is asked again later
TERM_S = 60  # before the time of a job is over, its supervisor gets SIGTERM, and the worker saves
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "SUSPENDED")
RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED")
ENDED: Mapping[str, Sight] = {"COMPLETED": "ended", "FAILED": "failed", "OUT_OF_MEMORY": "died"}
WORDS = {
    "OUT_OF_MEMORY": "it used more memory than the job was given",
    "NODE_FAIL": "its machine failed",
    "BOOT_FAIL": "its machine failed to start",
    "PREEMPTED": "it was preempted",
    "TIMEOUT": "the time of the job was over",
    "DEADLINE": "the job's deadline was over",
    "CANCELLED": "the job was cancelled",
}
# Messages of SLURM's commands that blame the cluster, not the job.
AWAY = re.compile(
    r"contact slurm controller|connect|timed out|try again|temporarily|communication|zero bytes|slurm_receive|backup controller"
    r"|not responding|munge|protocol authentication|memory allocation|resource is busy|socket",
    re.IGNORECASE,
)
NOT_HERE = "sbatch is not here"
LOG_IN = "type the command on a machine from which jobs are submitted, or take --launch local"


class Slurm:
    """A SLURM cluster.

    Args:
        options: Options of sbatch for each job, by their long names.
    """

    name = "slurm"

    def __init__(self, options: Mapping[str, str | int]) -> None:
        self._options = options
        # The name selects all of them in one query, and no other jobs of the user.
        self._name = f"mltrainer-{secrets.token_hex(4)}"
        self._has_begun = False

    def begin(self, command: RemoteCommand) -> str:
        """Submit a command as a job and return its id.

        Raises:
            InputError: SLURM refuses the job, or is not installed.
            EngineAwayError: SLURM does not answer.
        """
        script = f"#!/bin/sh\n# {command.name}\nexec {shlex.join(command.arguments)}\n"
        ended = _ask(["sbatch", *self._sbatch_options(command)], command.folder, command.environment, script)
        if ended.code == 0:
            self._has_begun = True
            return ended.out.decode().strip().partition(";")[0]  # the name of the cluster follows, if there are several
        words = ended.last_words if ended.in_time else "sbatch does not answer"
        if not ended.in_time or AWAY.search(words):
            raise EngineAwayError(words)
        raise InputError(
            f"SLURM refuses the job: {words}", where="launch.slurm", hint=f"the job's options: {self._option_words()}"
        )

    def _option_words(self) -> str:
        return " ".join(f"--{key}={value}" for key, value in self._options.items()) or "no options of sbatch"

    def _sbatch_options(self, command: RemoteCommand) -> list[str]:
        asked: dict[str, str | int] = {
            "job-name": self._name,
            "comment": command.name,
            "chdir": str(command.folder),
            "output": verbatim(command.log),
            "open-mode": "append",
            "export": "ALL",
            "nodes": 1,
            "ntasks": 1,
            "cpus-per-task": command.cores,
            **({"gpus-per-node": command.gpus} if command.gpus else {}),
            "signal": f"B:TERM@{TERM_S}",
            **self._options,
        }
        # No requeue by SLURM: the search begins each attempt, which continues elsewhere from its checkpoint.
        return ["--parsable", "--no-requeue", *(f"--{key}={value}" for key, value in asked.items())]

    def look(self) -> Mapping[str, Sighting]:
        """Return the jobs that the controller knows: waiting and running ones, and for some minutes ended ones.

        Raises:
            EngineAwayError: SLURM does not answer.
        """
        asked = ["--noheader", "--states=all", f"--name={self._name}", "--format=%i|%T|%N|%r"]
        ended = _ask(["squeue", *asked], Path.cwd(), os.environ)
        if ended.code != 0 or not ended.in_time:
            raise EngineAwayError(ended.last_words if ended.in_time else "squeue does not answer")
        rows = [line.strip().split("|", 3) for line in ended.out.decode().splitlines() if line.strip()]
        return {job: sighting(state, machine, why) for job, state, machine, why in rows}

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs; ended ones are ignored."""
        if jobs:
            _ask(["scancel", "--quiet", *jobs], Path.cwd(), os.environ)

    def close(self) -> None:
        """End all jobs of this process, even one whose id never arrived."""
        if self._has_begun:
            _ask(["scancel", "--quiet", f"--name={self._name}"], Path.cwd(), os.environ)


def sighting(state: str, machine: str, why: str) -> Sighting:
    """Return a job from a line of `squeue`.

    Args:
        state: State in squeue's spelling.
        machine: Machine that runs or ran it.
        why: Reason why it waits or ended; "None" if SLURM has none.
    """
    if state in WAITING:
        return Sighting("waiting", why, machine)
    if state in RUNNING:
        return Sighting("running", "", machine)
    detail = f" ({why})" if why not in ("", "None") else ""
    return Sighting(ENDED.get(state, "lost"), WORDS.get(state, f"the job ended with {state}") + detail, machine)


def verbatim(path: Path) -> str:
    """Return a path for --output, in which SLURM replaces percent codes."""
    return str(path).replace("%", "%%")


def _ask(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], given: str = "") -> Ended:
    """Run one of SLURM's commands.

    Raises:
        InputError: The command is missing.
    """
    # In a separate session: Ctrl-C would end it half-way, and queue a job of unknown id.
    command = Command(arguments=arguments, folder=folder, environment=environment, has_session=True)
    try:
        return answered(command, given.encode(), ANSWER_S)
    except FileNotFoundError as error:
        raise InputError(f"{NOT_HERE}: there is no command {arguments[0]}", where="launch.engine", hint=LOG_IN) from error


def engine(launch: Launching) -> Slurm:
    """Return the engine with the options of a config's `launch`."""
    return Slurm(launch.slurm)
