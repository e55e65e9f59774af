"""The processes that another one started: found by parent, session or environment, watched, and killed.

A process that computes is alive, even where its machine is too busy for signs of life: its CPU time shows it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import psutil

KEEPERS = ("multiprocessing.resource_tracker", "torch_shm_manager")  # they remove shared memory once its users have ended
GRACE_S = 3.0  # for them
STILL_S = 5.0  # without work, until a program is taken to wait for a process that was ended
LOOK_S = 0.5
BUSY = 0.05  # of a core
DOUBT_S = 3.0  # chosen by us: a process shows life every second; of one that has not for so long, its CPU time is looked at


class Running(NamedTuple):
    """A process.

    Attributes:
        pid: The process's id.
        is_keeper: Whether it removes other processes' shared memory once they have ended.
        worked: Seconds of CPU time that it has used.
    """

    pid: int
    is_keeper: bool
    worked: float


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that a process started, and those that they started; none of one that has ended."""
    import psutil  # here and below: most processes end by themselves, and its import takes longer than they need

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def processes_of(session: int, mark: str) -> list[Running]:
    """Return the living processes that belong to a session, or carry a mark in their environment."""
    import psutil

    living = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # ended meanwhile, a zombie, or another user's
            if _is_of(process, session, mark):
                living.append(_running(process))
    return living


def _is_of(process: psutil.Process, session: int, mark: str) -> bool:
    # The mark identifies processes that left the session, such as a daemon; the session those with other variables.
    is_ours = os.getsid(process.pid) == session or any(mark in value for value in process.environ().values())
    return is_ours and process.status() not in ("zombie", "dead")


def _running(process: psutil.Process) -> Running:
    worked, command = process.cpu_times(), " ".join(process.cmdline())
    return Running(process.pid, any(keeper in command for keeper in KEEPERS), worked.user + worked.system)


def kill_all(session: int, mark: str) -> None:
    """Kill the processes of a session or with a mark; those that remove shared memory are killed a moment later."""
    late = time.monotonic() + GRACE_S
    while time.monotonic() < late + 1:
        left = processes_of(session, mark)
        for running in left:
            # A keeper that is killed leaves in shared memory what its users, killed too, could not remove themselves.
            if not running.is_keeper or time.monotonic() > late:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(running.pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)


@contextlib.contextmanager
def guarded(session: int, mark: str) -> Iterator[None]:
    """Kill the processes of a session or with a mark, also when this process itself is killed within the block.

    A guard process waits for the end of a pipe, which the system closes however this process ends.
    """
    # In a separate session: Ctrl-C in the terminal reaches all processes of this one's group.
    command = [sys.executable, "-I", __file__, str(session), mark]
    none = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, cwd="/", start_new_session=True) as guard:
        try:
            yield
        finally:
            # Before the pipe is closed, which it would take for this process's death.
            guard.kill()


def standstill(look: Callable[[], list[Running]]) -> Callable[[], bool]:
    """Return a function to call now and then: it returns True once processes have used no CPU time for `STILL_S`.

    Args:
        look: The function that returns the processes.
    """
    looked = since = worked = 0.0

    def is_still() -> bool:
        nonlocal looked, since, worked
        now = time.monotonic()
        if now - looked < LOOK_S:
            return False
        total = sum(running.worked for running in look())
        # Either way: the work of a process that has ended leaves the sum.
        if not looked or abs(total - worked) > BUSY * (now - looked):
            since = now
        looked, worked = now, total
        return now - since > STILL_S

    return is_still


class Work:
    """The CPU time of some processes, compared with their CPU time at the last look."""

    def __init__(self) -> None:
        self._used: dict[int, float] = {}

    def goes_on(self, pid: int) -> bool:
        """Return True if a process has used CPU time since the last look; False at the first look, and where it has ended."""
        before, now = self._used.get(pid), cpu_s(pid)
        self._used[pid] = now
        return before is not None and now > before


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, in seconds; 0 where it has ended."""
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.stdin.read()
    kill_all(int(sys.argv[1]), sys.argv[2])
