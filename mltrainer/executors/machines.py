"""The other machines of a training: which there are, and the processes on one of them, used as one member of a gang.

`srun` starts an agent there (`python -m mltrainer.executors.gang`), and carries the messages of both sides. This side sends one
order on standard input, and keeps that open: when it ends, this side is gone, and everything there is killed. The agent answers
on standard output, a JSON object in a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.executors import local
from mltrainer.executors.executor import PIPE, Command
from mltrainer.executors.local import answered

MODULE = "mltrainer.executors.gang"
ANSWER_S = 60.0  # a busy controller takes its time
KILLING_S = 10.0  # chosen by us: a machine that answers has killed its processes by then
ALLOCATE = "run mltrainer launch print --for slurm > job.sh and sbatch job.sh, which ask for them, or set launch.machines: 1"


def other_machines(count: int) -> list[str]:
    """Return the names of the other machines that take part in a training, from this machine's SLURM job.

    Args:
        count: The number of all machines, this one among them.

    Raises:
        InputError: This machine is in no SLURM job, or its job has fewer machines.
    """
    nodes, here = os.environ.get("SLURM_JOB_NODELIST"), os.environ.get("SLURMD_NODENAME")
    if nodes is None or here is None:
        message = f"launch.machines: {count} needs a SLURM job, and this machine is in none"
        raise InputError(message, where="launch.machines", hint=ALLOCATE)
    names = _output(["scontrol", "show", "hostnames", nodes]).split()
    if len(names) < count:
        message = f"launch.machines is {count}, and the SLURM job has {len(names)}: {', '.join(names)}"
        raise InputError(message, where="launch.machines", hint=ALLOCATE)
    return [name for name in names if name != here][: count - 1]


def _output(arguments: list[str]) -> str:
    """Return the output of a SLURM command.

    Raises:
        InputError: The command cannot be started, or fails.
    """
    try:
        ended = answered(Command(arguments=arguments, folder=Path("/"), environment=os.environ), timeout=ANSWER_S)
    except OSError as error:
        raise InputError(f"{arguments[0]} cannot be started: {error.strerror}", where="launch.machines", hint=ALLOCATE) from error
    if ended.code != 0:
        raise InputError(f"{arguments[0]} failed: {ended.last_words}", where="launch.machines", hint=ALLOCATE)
    return ended.out.decode("utf-8", "replace")


def is_in_a_job() -> bool:
    """Return True on a machine of a SLURM job."""
    return "SLURM_JOB_NODELIST" in os.environ and "SLURMD_NODENAME" in os.environ


def way_to(machine: str) -> list[str]:
    """Return the arguments to put before a command to run it on another machine of the job."""
    cores = os.environ.get("SLURM_CPUS_PER_TASK")  # which a step does not inherit
    asked = [f"--cpus-per-task={cores}"] if cores else []
    return ["srun", "--nodes=1", "--ntasks=1", f"--nodelist={machine}", "--overlap", "--quiet", *asked]


class RemoteMachine:
    """Another machine with its processes of a command, which an agent there starts and watches; a member of a gang.

    Args:
        name: The machine's name.
        command: The command that is started there.
        ranks: The ranks of the processes there.
        signs: The descriptor that receives the machine's signs of life, each its first rank.

    Attributes:
        code: The exit code of the processes there, negative for a signal; None while one runs.
        fate: The way they were lost; None where they ended by themselves.

    Raises:
        OSError: `srun` cannot be started.
    """

    def __init__(self, name: str, command: Command, ranks: Sequence[int], signs: int) -> None:
        self._name, self._rank, self._signs = name, ranks[0], signs
        self.code: int | None = None
        self.fate: str | None = None
        self._lines: list[bytes] = []  # which nobody has read yet
        self._is_over = False
        self._killed_at: float | None = None
        arguments = [*way_to(name), sys.executable, "-P", "-m", MODULE]
        # In a separate session: the first process handles Ctrl-C in the terminal.
        reached = replace(command, arguments=arguments, input=PIPE, output=PIPE, processes=1, machines=1, has_session=True)
        assert isinstance(command.output, Path)
        with open(command.output, "ab") as log:
            self._link = local.start(replace(reached, errors=log))
        order = {
            "arguments": command.arguments,
            "folder": str(command.folder),
            "log": str(command.output),
            "ranks": [*ranks],
            "processes": command.processes,
            "life_sign_s": command.life_sign_s,
        }
        self._link.send(json.dumps(order).encode() + b"\n")

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while a process runs there."""
        self._hear()
        return self.code

    def listen(self, _timeout: float = 0) -> list[bytes] | None:
        """Return the lines that the processes have written, [] where there is none, None at their end."""
        self._hear()
        lines, self._lines = self._lines, []
        return lines if lines or self.code is None else None

    def _hear(self) -> None:
        """Read the agent's new messages; if the agent has ended, its processes are lost."""
        if self._is_over:
            return
        while lines := self._link.listen():
            for line in lines:
                self._take(line)
        if lines is None and (code := self._link.poll()) is not None:
            self._is_over = True
            if self.code is None:
                self.code, self.fate = (
                    -signal.SIGKILL,
                    f"was lost with machine {self._name}: its srun ended with exit code {code}",
                )
        if self._killed_at is not None and time.monotonic() - self._killed_at > KILLING_S:
            self._link.kill()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:  # of srun, or of the machine's shell
            return
        if "alive" in message:
            with contextlib.suppress(OSError):  # nobody reads any more
                os.write(self._signs, b"%d\n" % self._rank)
        elif "line" in message:
            self._lines.append(message["line"].encode())
        elif "code" in message:
            self.code = message["code"]

    def kill(self) -> None:
        """Make the agent kill all of its processes."""
        if self._killed_at is None:
            self._killed_at = time.monotonic()
            self._link.close_input()

    def close(self) -> None:
        """Leave the connection open: the agent reports until its processes have ended."""

    def leave(self) -> None:
        """Close the connection once all processes there have ended."""
        self._is_over = True  # their end was reported, and their lines before
        self._link.close()
        self._link.kill()
        self._link.wait()
