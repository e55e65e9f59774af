"""Processes of one training on another machine: an agent there starts them, watches them and reports.

`srun` starts it, and carries the messages of both sides. This side sends one order on standard input, and keeps that open:
when it ends, this side is gone, and everything there is killed. The agent answers on standard output, a JSON object in a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.executors import local
from mltrainer.executors.executor import LIFE, LOCAL_RANK, PIPE, RANK, Command
from mltrainer.executors.local import answered
from mltrainer.executors.process_tree import DOUBT_S, Work

MODULE = "mltrainer.executors.machine_agent"
ANSWER_S = 60.0  # a busy controller takes its time
KILLING_S = 10.0  # chosen by us: a machine that answers has killed its processes by then
LOOK_S = 0.2
READ_BYTES = 1 << 16
ALLOCATE = "run mltrainer launch print --for slurm > job.sh and sbatch job.sh, which ask for them, or set launch.machines: 1"


def machines(count: int) -> list[str]:
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
    names = _said(["scontrol", "show", "hostnames", nodes]).split()
    if len(names) < count:
        message = f"launch.machines is {count}, and the SLURM job has {len(names)}: {', '.join(names)}"
        raise InputError(message, where="launch.machines", hint=ALLOCATE)
    return [name for name in names if name != here][: count - 1]


def _said(arguments: list[str]) -> str:
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
    """Another machine, and the processes of a command there.

    Args:
        name: The machine's name.
        command: The command that is started there.
        ranks: The ranks of the processes there.
        signs: The descriptor that receives their signs of life.

    Raises:
        OSError: `srun` cannot be started.
    """

    def __init__(self, name: str, command: Command, ranks: Sequence[int], signs: int) -> None:
        self.name, self._signs = name, signs
        self._is_over = False
        self._killed_at: float | None = None
        self.members = {rank: RemoteProcess(self, rank) for rank in ranks}
        arguments = [*way_to(name), sys.executable, "-P", "-m", MODULE]
        # In a separate session: the first process handles Ctrl-C in the terminal.
        reached = replace(command, arguments=arguments, input=PIPE, output=PIPE, processes=1, machines=1, has_session=True)
        assert isinstance(command.output, Path)
        with open(command.output, "ab") as log:
            self._link = local.start(replace(reached, errors=log))
        order = {"arguments": command.arguments, "folder": str(command.folder), "log": str(command.output), "ranks": [*ranks]}
        self._link.send(json.dumps(order).encode() + b"\n")

    def hear(self) -> None:
        """Read the agent's new messages; if the agent has ended, its processes are lost."""
        if self._is_over:
            return
        while lines := self._link.listen():
            for line in lines:
                self._take(line)
        if lines is None and (code := self._link.poll()) is not None:
            self._is_over = True
            for member in self.members.values():
                member.lose(f"was lost with machine {self.name}: its srun ended with exit code {code}")
        if self._killed_at is not None and time.monotonic() - self._killed_at > KILLING_S:
            self._link.kill()

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:  # of srun, or of the machine's shell
            return
        if "alive" in message:
            with contextlib.suppress(OSError):  # nobody reads any more
                os.write(self._signs, b"".join(b"%d\n" % rank for rank in message["alive"]))
        elif "line" in message:
            self.members[message["rank"]].lines.append(message["line"].encode())
        elif "code" in message:
            self.members[message["rank"]].code = message["code"]

    def kill(self) -> None:
        """Make the agent kill all of its processes."""
        if self._killed_at is None:
            self._killed_at = time.monotonic()
            self._link.close_input()

    def close(self) -> None:
        """Close the connection once all processes there have ended."""
        self._is_over = True  # the end of each process was reported, and its lines before
        self._link.close()
        self._link.kill()
        self._link.wait()


class RemoteProcess:
    """One process on another machine; a member of a gang.

    Attributes:
        code: The exit code, negative for a signal; None while it runs.
        fate: The way it was lost; None where it ended by itself.
        lines: The lines that it has written and that nobody has read yet.
    """

    def __init__(self, machine: RemoteMachine, rank: int) -> None:
        self._machine, self.rank = machine, rank
        self.code: int | None = None
        self.fate: str | None = None
        self.lines: list[bytes] = []

    def lose(self, fate: str) -> None:
        """Take it for ended if no end was reported."""
        if self.code is None:
            self.code, self.fate = -signal.SIGKILL, fate

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        self._machine.hear()
        return self.code

    def listen(self, _timeout: float = 0) -> list[bytes] | None:
        """Return the lines that it has written, [] where there is none, None at their end."""
        self._machine.hear()
        lines, self.lines = self.lines, []
        return lines if lines or self.code is None else None

    def close(self) -> None:
        """Leave it as it is: its machine is closed with the last of its processes."""

    def kill(self) -> None:
        """Kill it, with all others on its machine."""
        self._machine.kill()


# --- on the other machine -------------------------------------------------------------------------


def main() -> None:
    """Start the processes of the order on standard input, and report until all have ended."""
    order = json.loads(sys.stdin.buffer.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the first process of the training has all stop at one step
    Agent(order).run()


class Agent:
    """The processes of an order.

    Args:
        order: Arguments, folder, log and ranks.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._order = order
        self._processes: dict[int, local.LocalProcess] = {}
        self._reported: set[int] = set()
        self._signed: dict[int, float] = {}  # when each last showed life
        self._work = Work()

    def run(self) -> None:
        """Start the processes, report, and leave none behind, also where nobody reads any more."""
        life, write_end = os.pipe()
        try:
            for place, rank in enumerate(self._order["ranks"]):
                self._processes[rank] = local.start(self._command(place, rank, write_end))
            while len(self._reported) < len(self._processes) and not self._is_left(life):
                self._report()
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()

    def _command(self, place: int, rank: int, write_end: int) -> Command:
        own = {RANK: str(rank), LOCAL_RANK: str(place), LIFE: str(write_end)}
        return Command(
            arguments=self._order["arguments"],
            folder=Path(self._order["folder"]),
            environment={**os.environ, **own},
            output=Path(self._order["log"]),
            has_session=True,
            descriptors=[write_end],
        )

    def _is_left(self, life: int) -> bool:
        """Wait a moment for messages, forward the signs of life, and return True if the order's sender has ended."""
        running = {rank: process for rank, process in self._processes.items() if rank not in self._reported}
        ready, _, _ = select.select([0, life, *(process.fileno() for process in running.values())], [], [], LOOK_S)
        alive = {int(rank) for rank in os.read(life, READ_BYTES).split()} if life in ready else set()
        now = time.monotonic()
        silent = [rank for rank in running if now - self._signed.get(rank, 0.0) > DOUBT_S]
        alive |= {rank for rank in silent if self._work.goes_on(running[rank].pid)}
        self._signed |= dict.fromkeys(alive, now)
        if alive:
            _say(alive=sorted(alive))
        return 0 in ready and not os.read(0, READ_BYTES)

    def _report(self) -> None:
        for rank, process in self._processes.items():
            code = process.poll()  # first: lines from before its end are read afterwards
            for line in process.listen() or []:
                _say(rank=rank, line=line.decode("utf-8", "replace"))
            if code is not None and rank not in self._reported:
                self._reported.add(rank)
                _say(rank=rank, code=code)


def _say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
