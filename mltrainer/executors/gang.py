"""Several processes of one command on this machine, which work on one training together: all go on, or none does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from mltrainer.errors import KilledError, ended_with
from mltrainer.executors.executor import ALIVE, RANK, RENDEZVOUS, WORLD_SIZE, Command
from mltrainer.executors.local import LocalProcess, spawn

SILENT_S = 15.0  # chosen by us: a process says every second that it is alive, unless it is stopped, or its machine too busy
STARTING_S = 10.0  # more for the first sign, while the interpreter starts
AGAIN = "type the same command again to go on from the last checkpoint, with the same or another number of processes"


def start(command: Command) -> Gang:
    """Start a command as `command.processes` processes, each with its rank and the place where they find each other.

    Raises:
        OSError: One cannot be started.
    """
    meeting = Path(tempfile.mkdtemp(prefix="mltrainer-ranks-"))
    read_end, write_end = os.pipe()
    children: list[LocalProcess] = []
    try:
        for rank in range(command.processes):
            own = {RANK: str(rank), WORLD_SIZE: str(command.processes), RENDEZVOUS: str(meeting / "store")}
            child = spawn(replace(command, environment={**command.environment, **own}), write_end)
            children.append(LocalProcess(child, None if rank else read_end, command.has_session))
    except OSError:
        for started in children:
            started.kill()
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return Gang(children, meeting)


class Gang:
    """Processes as one; see `executors.executor.Process`. Signals go to the first, which has the others stop at the same step.

    Args:
        children: In the order of their ranks; the first one's lines are those of all.
        meeting: The folder where they find each other, removed at the end.
    """

    def __init__(self, children: list[LocalProcess], meeting: Path) -> None:
        self._children, self._meeting = children, meeting
        self._began = time.monotonic()
        self._signed: dict[int, float] = {}  # when each gave its last sign of life
        self._failed: int | None = None  # the exit code of the first one that failed
        self._has_error = False
        self._last_words: list[bytes] = []

    @property
    def pid(self) -> int:
        """The number of the first one."""
        return self._children[0].pid

    def poll(self) -> int | None:
        """Return the exit code, that of the first process that failed; None while one runs. When one fails, all are killed."""
        codes = [child.poll() for child in self._children]
        if self._failed is None:
            self._end_after(codes)
        if None in codes:
            return None
        return self._failed or 0

    def _end_after(self, codes: list[int | None]) -> None:
        """Kill all where one has failed, or says nothing any more; keep the reason where it cannot give one itself."""
        failed = next(((rank, code) for rank, code in enumerate(codes) if code), None)
        silent = next((rank for rank, code in enumerate(codes) if code is None and self._silent_s(rank) > SILENT_S), None)
        if failed is None and silent is None:
            return
        if failed is not None:
            rank, self._failed = failed
            how = f"was ended by {ended_with(self._failed)}"
            is_told = self._failed > 0 or -self._failed in (signal.SIGINT, signal.SIGTERM)
        else:
            assert silent is not None
            rank, self._failed, how, is_told = silent, -signal.SIGKILL, f"gave no sign of life for {SILENT_S:.0f} s", False
        if not is_told:
            what = f"process {rank} of {len(codes)} {how}; the others were ended with it"
            row = {"event": "error", "exit_code": KilledError.exit_code, "message": what, "where": None, "mend": AGAIN}
            self._last_words.append(json.dumps(row).encode())
        for child in self._children:
            child.kill()

    def _silent_s(self, rank: int) -> float:
        """Return the seconds since a process gave a sign of life, or since it should have given its first."""
        return time.monotonic() - self._signed.get(rank, self._began + STARTING_S)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code, None where one still runs after `timeout` seconds."""
        late = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None and (late is None or time.monotonic() < late):
            time.sleep(0.01)
        return code

    def fileno(self) -> int:
        """Return the descriptor of the lines of all."""
        return self._children[0].fileno()

    def listen(self, timeout: float = 0) -> list[bytes] | None:
        """Return the lines that they have written but for signs of life, and of their errors the first; None at their end."""
        lines = self._children[0].listen(timeout)
        if lines is None:
            last, self._last_words = self._last_words, []
            return last or None
        return [line for line in lines if self._is_news(line)]

    def _is_news(self, line: bytes) -> bool:
        if line.startswith(ALIVE):
            self._signed[int(line.removeprefix(ALIVE))] = time.monotonic()
            return False
        is_error = line.startswith(b'{"event": "error"')
        is_first = not (is_error and self._has_error)
        self._has_error |= is_error
        return is_first

    def send(self, data: bytes) -> None:
        """Write to the first one's standard input."""
        self._children[0].send(data)

    def close_input(self) -> None:
        """Close the first one's standard input."""
        self._children[0].close_input()

    def close(self) -> None:
        """Close all that leads to them."""
        for child in self._children:
            child.close()
        shutil.rmtree(self._meeting, ignore_errors=True)

    def signal(self, number: int) -> None:
        """Send the first one a signal, unless it has ended."""
        self._children[0].signal(number)

    def kill(self) -> None:
        """Kill all of them, and all that they started."""
        self._failed = -signal.SIGKILL if self._failed is None else self._failed
        for child in self._children:
            child.kill()
