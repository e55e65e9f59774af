"""Several processes of one command, on this machine and others, which train one model together: all go on, or none does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from mltrainer.errors import KilledError, ended_with
from mltrainer.executors import local, machine_agent
from mltrainer.executors.executor import LIFE, LOCAL_RANK, LOCAL_SIZE, RANK, RENDEZVOUS, WORLD_SIZE, Command
from mltrainer.executors.machine_agent import RemoteMachine, RemoteProcess
from mltrainer.executors.process_tree import DOUBT_S, Work
from mltrainer.leftovers import new_folder, scratch

STARTING_S = 10.0  # more for the first sign, while the interpreter starts
LOOK_S = (
    1.0  # the most that counts between two looks: who was stopped too, as by Ctrl-Z, or kept waiting, cannot blame the others
)
WAIT_S = 0.01  # between looks at whether they have ended
AGAIN = "type the same command again to go on from the last checkpoint, with the same or another number of processes"


def start(command: Command) -> Gang:
    """Start a command as `command.processes` processes, each with its rank and the folder where they find each other.

    Raises:
        OSError: One cannot be started.
        InputError: There are not as many machines.
    """
    others = machine_agent.machines(command.machines) if command.machines > 1 else []
    meeting = scratch("ranks-")
    if others:  # then beside the log, below the project: a folder that other machines see too
        assert isinstance(command.output, Path)
        meeting = new_folder(command.output.parent)
    # Made before its processes: whichever of them cannot be started, those before it are ended by it.
    gang = Gang(meeting, command.life_sign_s)
    try:
        gang.begin(command, others)
    except OSError:
        # Those that did start wait for one that never comes.
        gang.kill()
        gang.close()
        gang.wait()
        raise
    return gang


class Gang:
    """Processes used as one; see `executors.executor.Process`. Signals go to the first; it stops the others at the same step.

    Args:
        meeting: The folder where the processes find each other; it is removed once they have ended.
        life_sign_s: Seconds without a sign of life after which a process is taken for hung.

    Attributes:
        children: The processes, in the order of their ranks. Each has a separate pipe: in one, their long lines would mix.
    """

    def __init__(self, meeting: AbstractContextManager[Path], life_sign_s: float) -> None:
        self.children: list[local.LocalProcess | RemoteProcess] = []
        self._machines: list[RemoteMachine] = []
        self._life, self._write_end = os.pipe()  # of their signs of life
        os.set_blocking(self._life, False)
        self._left = contextlib.ExitStack()
        self._meeting = self._left.enter_context(meeting)
        self._life_sign_s = life_sign_s
        self._looked, self._watched_s = time.monotonic(), 0.0  # when it was last looked, and for how long so far
        self._signed: dict[int, float] = {}  # at which of these seconds each showed life, or was to show it at the latest
        self._work = Work()
        self._code: int | None = None  # of the first one that failed
        self._has_error = False
        self._last_words: list[bytes] = []

    def begin(self, command: Command, others: Sequence[str]) -> None:
        """Start the processes, as many on each machine.

        Args:
            command: The command, as `start` takes it.
            others: The names of the other machines.

        Raises:
            OSError: One cannot be started.
        """
        each = command.processes // (1 + len(others))
        sizes = {WORLD_SIZE: str(command.processes), LOCAL_SIZE: str(each)}
        shared = {**sizes, RENDEZVOUS: str((self._meeting / "store").absolute())}
        for rank in range(each):
            own = {**command.environment, **shared, LIFE: str(self._write_end), RANK: str(rank), LOCAL_RANK: str(rank)}
            self.children.append(local.start(replace(command, environment=own, descriptors=[self._write_end])))
        for place, name in enumerate(others, 1):
            ranks = range(place * each, (place + 1) * each)
            there = replace(command, environment={**command.environment, **shared})
            self._machines.append(RemoteMachine(name, there, ranks, self._write_end))
            self.children += self._machines[-1].members.values()

    @property
    def _first(self) -> local.LocalProcess:
        first = self.children[0]
        assert isinstance(first, local.LocalProcess)
        return first

    @property
    def pid(self) -> int:
        """The id of the first process."""
        return self._first.pid

    def poll(self) -> int | None:
        """Return the exit code, that of the first process that failed; None while one runs. When one fails, all are killed."""
        codes = [child.poll() for child in self.children]
        self._look()
        if self._code is None:
            self._end_after(codes)
        if None in codes:
            return None
        self._leave()
        return self._code or 0

    def _look(self) -> None:
        """Read the signs of life."""
        now = time.monotonic()
        self._watched_s += min(now - self._looked, LOOK_S)
        self._looked = now
        if not self._signed:
            self._signed = dict.fromkeys(range(len(self.children)), self._watched_s + STARTING_S)
        with contextlib.suppress(OSError):  # nothing came, or the pipe is closed
            self._signed |= {int(rank): self._watched_s for rank in os.read(self._life, 1 << 16).split()}
        for rank, child in enumerate(self.children):
            # The agent on another machine reports for the processes there.
            if self._silent_s(rank) > DOUBT_S and isinstance(child, local.LocalProcess) and self._work.goes_on(child.pid):
                self._signed[rank] = self._watched_s

    def _end_after(self, codes: list[int | None]) -> None:
        """Kill all where one has failed or shows no life any more; keep the reason where that process cannot report it."""
        failed = next(((rank, code) for rank, code in enumerate(codes) if code), None)
        silent = next(
            (rank for rank, code in enumerate(codes) if code is None and self._silent_s(rank) > self._life_sign_s), None
        )
        if failed is not None:
            self._end(*failed)
        elif silent is not None:
            self._say(silent, f"gave no sign of life and used no CPU time for {self._life_sign_s:g} s (launch.life_sign_s)")
            self.kill()

    def _end(self, rank: int, code: int) -> None:
        self._code = code
        if code < 0 and -code not in (signal.SIGINT, signal.SIGTERM):  # else it says why itself, or was asked to
            child = self.children[rank]
            fate = child.fate if isinstance(child, RemoteProcess) else None
            self._say(rank, fate or f"was ended by {ended_with(code)}")
        self.kill()

    def _say(self, rank: int, how: str) -> None:
        message = f"process {rank} of {len(self.children)} {how}; the others were ended with it"
        row = {"event": "error", "exit_code": KilledError.exit_code, "message": message, "where": None, "mend": AGAIN}
        self._last_words.append(json.dumps(row).encode())

    def _silent_s(self, rank: int) -> float:
        return self._watched_s - self._signed[rank]

    def _leave(self) -> None:
        """Close and remove what they shared, once."""
        if self._life >= 0:
            for machine in self._machines:
                machine.close()
            os.close(self._life)
            os.close(self._write_end)
            self._left.close()
        self._life = -1

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code, None where one still runs after `timeout` seconds."""
        late = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None and (late is None or time.monotonic() < late):
            time.sleep(WAIT_S)
        return code

    def fileno(self) -> int:
        """Return the descriptor of the first process's lines."""
        return self._first.fileno()

    def listen(self, timeout: float = 0) -> list[bytes] | None:
        """Return the lines that they have written, of their errors the first alone; None at their end.

        The first process reports on the training; the others write lines only when they fail.
        """
        first, others = self._first, self.children[1:]
        # Only the first is waited for: the others write next to nothing, and their lines are read with its lines.
        lines = first.listen(timeout)
        written = [*(lines or []), *(line for child in others for line in child.listen() or [])]
        if lines is None and not written:
            # The pipe of one that was killed ends before its exit code is there: which one it was is known only afterwards.
            if self.poll() is None:
                time.sleep(min(timeout, WAIT_S))
                return []
            written, self._last_words = self._last_words, []
        return [line for line in written if self._is_news(line)] if written or lines is not None else None

    def _is_news(self, line: bytes) -> bool:
        is_error = line.startswith(b'{"event": "error"')
        is_first = not (is_error and self._has_error)
        self._has_error |= is_error
        return is_first

    def send(self, data: bytes) -> None:
        """Write to the first one's standard input."""
        self._first.send(data)

    def close_input(self) -> None:
        """Close the first one's standard input."""
        self._first.close_input()

    def close(self) -> None:
        """Close the pipes to the processes; their signs of life are read until they end."""
        for child in self.children:
            child.close()

    def signal(self, number: int) -> None:
        """Send the first one a signal, unless it has ended."""
        self._first.signal(number)

    def kill(self) -> None:
        """Kill all processes, and all that they started."""
        # Set first: a child that is seen killed afterwards has not failed by itself, and gets no last words.
        self._code = -signal.SIGKILL if self._code is None else self._code
        for child in self.children:
            child.kill()
