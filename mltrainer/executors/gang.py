"""Several processes of one command, on this machine and others, which train one model together: all go on, or none does.

`python -P -m mltrainer.executors.gang` is the agent on another machine: it starts the processes of the order on its standard
input as a gang there, and reports; see `executors.machines`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mltrainer.errors import KilledError, ended_with
from mltrainer.executors import local, machines
from mltrainer.executors.executor import LIFE, LOCAL_RANK, LOCAL_SIZE, RANK, RENDEZVOUS, WORLD_SIZE, Command
from mltrainer.executors.machines import RemoteMachine
from mltrainer.executors.process_tree import DOUBT_S, Work
from mltrainer.executors.signs import Sign, hanging, read, slowest, write_stacks
from mltrainer.leftovers import new_folder, scratch

STARTING_S = 10.0  # more for the first sign, while the interpreter starts
LOOK_S = (
    1.0  # the most that counts between two looks: who was stopped too, as by Ctrl-Z, or kept waiting, cannot blame the others
)
REPORT_S = 0.2  # the longest that an agent waits for lines
WAIT_S = 0.01  # between looks at whether they have ended
Begin = Callable[[Command], local.PipedProcess]
AGAIN = "type the same command again to go on from the last checkpoint, with the same or another number of processes"


def start(command: Command, begin: Begin = local.start) -> Gang:
    """Start a command as `command.processes` processes, each with its rank and the folder where they find each other.

    Args:
        command: The command.
        begin: Starts each process of this machine.

    Raises:
        OSError: One cannot be started.
        InputError: There are not as many machines.
    """
    others = machines.other_machines(command.machines) if command.machines > 1 else []
    meeting = scratch("ranks-")
    if others:  # then beside the log, below the project: a folder that other machines see too
        assert isinstance(command.output, Path)
        meeting = new_folder(command.output.parent)
    # Made before its processes: whichever of them cannot be started, those before it are ended by it.
    gang = Gang(meeting, command.life_sign_s, command.processes)
    try:
        gang.begin(command, others, begin)
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
        size: The number of all processes, those of other gangs among them.

    Attributes:
        children: The processes of this machine, and other machines, by their first ranks, in order. Each process has a separate
            pipe: in one, their long lines would mix.
    """

    def __init__(self, meeting: AbstractContextManager[Path], life_sign_s: float, size: int) -> None:
        self.children: dict[int, local.PipedProcess | RemoteMachine] = {}
        self._size, self._folder = size, Path()
        self._log: Path | None = None  # which gets the stacks of all processes when one hangs
        self._life, self._write_end = os.pipe()  # of their signs of life
        os.set_blocking(self._life, False)
        self._left = contextlib.ExitStack()
        self._meeting = self._left.enter_context(meeting)
        self._life_sign_s = life_sign_s
        self._looked, self._watched_s = time.monotonic(), 0.0  # when it was last looked, and for how long so far
        self._signed: dict[int, float] = {}  # at which of these seconds each showed life, or was to show it at the latest
        self._signs: dict[int, Sign] = {}  # the last one of each process
        self._heard: dict[int, float] = {}  # at which of these seconds it came
        self._went_on: dict[int, float] = {}  # and when one came that said that the process goes on
        self._work = Work()
        self._code: int | None = None  # of the first one that failed
        self._has_error = False
        self._last_words: list[bytes] = []

    def begin(self, command: Command, others: Sequence[str], begin: Begin = local.start) -> None:
        """Start the processes, as many on each machine.

        Args:
            command: The command, as `start` takes it.
            others: The names of the other machines.
            begin: Starts each process of this machine.

        Raises:
            OSError: One cannot be started.
        """
        each = command.processes // (1 + len(others))
        sizes = {WORLD_SIZE: str(command.processes), LOCAL_SIZE: str(each)}
        shared = {**command.environment, **sizes, RENDEZVOUS: str((self._meeting / "store").absolute())}
        one = replace(command, environment=shared)
        self.begin_here(one, range(each), begin)
        for name, rank in zip(others, range(each, command.processes, each), strict=True):
            self.children[rank] = RemoteMachine(name, one, range(rank, rank + each), self._write_end)

    def begin_here(self, command: Command, ranks: Sequence[int], begin: Begin = local.start) -> None:
        """Start the processes of some ranks on this machine, as `begin` of `start` says.

        Raises:
            OSError: One cannot be started.
        """
        self._folder, self._log = command.folder, command.output if isinstance(command.output, Path) else None
        for place, rank in enumerate(ranks):
            own = {**command.environment, RANK: str(rank), LOCAL_RANK: str(place)}
            self.children[rank] = begin(replace(command, environment=own, descriptors={LIFE: self._write_end}))

    @property
    def _here(self) -> dict[int, local.PipedProcess]:
        return {rank: child for rank, child in self.children.items() if isinstance(child, local.PipedProcess)}

    @property
    def _first(self) -> local.PipedProcess:
        return next(iter(self._here.values()))

    @property
    def is_abandoned(self) -> bool:
        """Whether what a process was forked from was killed, and the process with it."""
        return any(child.is_abandoned for child in self._here.values())

    @property
    def pid(self) -> int:
        """The id of the first process."""
        return self._first.pid

    def poll(self) -> int | None:
        """Return the exit code, that of the first process that failed; None while one runs. When one fails, all are killed."""
        codes = {rank: child.poll() for rank, child in self.children.items()}
        self._look()
        if self._code is None:
            self._end_after(codes)
        if None in codes.values():
            return None
        if self._life >= 0 and self._code is None and (found := slowest(self._signs)) is not None:
            self._last_words.append(json.dumps({"event": "note", "text": found}).encode())
        self._leave()
        return self._code or 0

    def _look(self) -> None:
        """Read the signs of life."""
        now = time.monotonic()
        self._watched_s += min(now - self._looked, LOOK_S)
        self._looked = now
        if not self._signed:
            self._signed = dict.fromkeys(self.children, self._watched_s + STARTING_S)
        with contextlib.suppress(OSError):  # nothing came, or the pipe is closed
            for sign in read(os.read(self._life, 1 << 16)):
                self._note(sign)
        for rank, child in self._here.items():  # the agent on another machine watches the processes there
            if self._silent_s(rank) > DOUBT_S and self._work.goes_on(child.pid):
                self._signed[rank] = self._watched_s

    def _note(self, sign: Sign) -> None:
        self._signs[sign.rank] = sign
        self._signed[sign.rank] = self._heard[sign.rank] = self._watched_s
        if sign.works:
            self._went_on[sign.rank] = self._watched_s

    def _still(self) -> dict[int, Sign]:
        """Return the last signs of the processes that live, and have not gone on for too long."""
        late = {rank: at - self._life_sign_s for rank, at in self._heard.items()}
        return {rank: sign for rank, sign in self._signs.items() if self._went_on.get(rank, late[rank]) < late[rank]}

    def _end_after(self, codes: dict[int, int | None]) -> None:
        """Kill all where one has failed or shows no life any more; keep the reason where that process cannot report it."""
        failed = next(((rank, code) for rank, code in codes.items() if code), None)
        silent = next((rank for rank, code in codes.items() if code is None and self._silent_s(rank) > self._life_sign_s), None)
        if failed is not None:
            self._end(*failed)
        elif silent is not None:
            seen = self._signs.get(silent, Sign(silent)).words()
            self._end_hung(silent, f"gave no sign of life and {self._no_work}" + (f", last seen{seen}" if seen else ""))
        elif (found := hanging(self._still(), self._size)) is not None:
            rank, where, others = found
            self._end_hung(rank, f"hangs{where}: it {self._no_work}{others}")

    @property
    def _no_work(self) -> str:
        return f"used no CPU time for {self._life_sign_s:g} s (launch.life_sign_s)"

    def _end_hung(self, rank: int, how: str) -> None:
        """Add the stacks of this machine's processes to the log, and kill all."""
        self._say(rank, how, None if self._log is None else os.path.relpath(self._log, self._folder))
        if self._log is not None:
            pids = {number: child.pid for number, child in self._here.items()}
            write_stacks(self._log, self._meeting, pids, self._signs)
        self.kill()

    def _end(self, rank: int, code: int) -> None:
        self._code = code
        if code < 0 and -code not in (signal.SIGINT, signal.SIGTERM):  # else it says why itself, or was asked to
            child = self.children[rank]
            how = child.fate if isinstance(child, RemoteMachine) else f"was ended by {ended_with(code)}"
            if how is not None:  # else the agent has said which process it was
                self._say(rank, how)
        self.kill()

    def _say(self, rank: int, how: str, where: str | None = None) -> None:
        message = f"process {rank} of {self._size} {how}; the others were ended with it"
        row = {"event": "error", "exit_code": KilledError.exit_code, "message": message, "where": where, "mend": AGAIN}
        self._last_words.append(json.dumps(row).encode())

    def _silent_s(self, rank: int) -> float:
        return self._watched_s - self._signed[rank]

    def _leave(self) -> None:
        """Close and remove what they shared, once."""
        if self._life >= 0:
            for child in self.children.values():
                if isinstance(child, RemoteMachine):
                    child.leave()
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
        first, (_, *others) = self._first, self.children.values()
        # Only the first is waited for: the others write next to nothing, and their lines are read with its lines.
        lines = first.listen(timeout)
        written = [*(lines or []), *(line for child in others for line in child.listen() or [])]
        if not written and self.poll() is not None:
            written, self._last_words = self._last_words, []
        elif lines is None and not written:
            # The pipe of one that was killed ends before its exit code is there: which one it was is known only afterwards.
            time.sleep(min(timeout, WAIT_S))
            return []
        return [line for line in written if self._is_news(line)] if written or lines is not None else None

    def _is_news(self, line: bytes) -> bool:
        is_error = line.startswith(b'{"event": "error"')
        is_first = not (is_error and self._has_error)
        self._has_error |= is_error
        return is_first

    def send(self, data: bytes) -> None:
        """Write to the standard input of each process of this machine."""
        for child in self._here.values():
            child.send(data)

    def close_input(self) -> None:
        """Close the standard input of each process of this machine."""
        for child in self._here.values():
            child.close_input()

    def close(self) -> None:
        """Close the pipes to the processes; their signs of life are read until they end."""
        for child in self.children.values():
            child.close()

    def signal(self, number: int) -> None:
        """Send the first one a signal, unless it has ended."""
        self._first.signal(number)

    def kill(self) -> None:
        """Kill all processes, and all that they started."""
        # Set first: a child that is seen killed afterwards has not failed by itself, and gets no last words.
        self._code = -signal.SIGKILL if self._code is None else self._code
        for child in self.children.values():
            child.kill()


# --- the agent on another machine -----------------------------------------------------------------


def main() -> None:
    """Start the processes of the order on standard input, and report until all have ended, or nobody reads any more."""
    order = json.loads(sys.stdin.buffer.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the first process of the training has all stop at one step
    command = Command(
        arguments=order["arguments"],
        folder=Path(order["folder"]),
        environment=os.environ,
        output=Path(order["log"]),
        has_session=True,
    )
    meeting = contextlib.nullcontext(Path(os.environ.get(RENDEZVOUS, "")).parent)
    gang = Gang(meeting, order["life_sign_s"], order["processes"])
    try:
        gang.begin_here(command, order["ranks"])
        _report(gang)
    finally:
        gang.kill()
        gang.wait()


def _report(gang: Gang) -> None:
    """Write what the processes of a gang do to standard output, until they have ended or standard input ends."""
    code, sent_at = None, -math.inf
    while not (select.select([0], [], [], 0)[0] and not os.read(0, 1)):
        lines = gang.listen(REPORT_S if code is None else 0)
        for line in lines or []:
            _send(line=line.decode("utf-8", "replace"))
        if not lines and code is not None:  # it ended before nothing more came
            _send(code=code)
            return
        if time.monotonic() - sent_at >= LOOK_S:
            sent_at = time.monotonic()
            _send(alive=True)
        code = gang.poll()


def _send(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
