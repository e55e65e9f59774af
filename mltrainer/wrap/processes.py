"""The processes that a program began, wherever they went: found by session or environment, watched, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

KEEPERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")  # they remove shared memory once its users have ended
GRACE_S = 3.0  # for them
STILL_S = 5.0  # without work, until a program is taken to wait for a process that was ended
LOOK_S = 0.5
BUSY = 0.05  # of a core


class Running(NamedTuple):
    """A process.

    Attributes:
        number: Its id.
        is_keeper: Whether it removes what others leave in shared memory.
        worked: Seconds of a core that it has taken.
    """

    number: int
    is_keeper: bool
    worked: float


def began(session: int, mark: bytes) -> list[Running]:
    """Return the living processes that are of a session, or carry a mark in their environment; none where /proc is missing."""
    found = (_read(folder, session, mark) for folder in Path("/proc").glob("[0-9]*"))
    return [running for running in found if running is not None]


def _read(folder: Path, session: int, mark: bytes) -> Running | None:
    try:
        state, *numbers = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        is_ours = int(numbers[2]) == session or mark in (folder / "environ").read_bytes()
        if state in "ZX" or not is_ours:
            return None
        command = (folder / "cmdline").read_bytes()
    except OSError:  # ended meanwhile, or another user's
        return None
    worked = (int(numbers[10]) + int(numbers[11])) / os.sysconf("SC_CLK_TCK")
    return Running(int(folder.name), any(keeper in command for keeper in KEEPERS), worked)


def end_all(session: int, mark: bytes) -> None:
    """End the processes of a session or with a mark; those that remove shared memory have a moment for it."""
    late = time.monotonic() + GRACE_S
    while time.monotonic() < late + 1:
        left = began(session, mark)
        for running in left:
            if not running.is_keeper or time.monotonic() > late:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(running.number, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)


@contextlib.contextmanager
def guarded(session: int, mark: bytes) -> Iterator[None]:
    """End the processes of a session or with a mark when this process is killed within the block, which it cannot see to itself.

    A process of its own waits for the end of a pipe, which the system closes however this one ends.
    """
    command = [sys.executable, "-I", "-S", __file__, str(session), os.fsdecode(mark)]
    none = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, cwd="/", start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.kill()


def standstill(look: Callable[[], list[Running]]) -> Callable[[], bool]:
    """Return a function, called now and then: it returns True once processes have done nothing for `STILL_S`.

    Args:
        look: Returns the processes.
    """
    looked = since = worked = 0.0

    def is_still() -> bool:
        nonlocal looked, since, worked
        now = time.monotonic()
        if now - looked < LOOK_S:
            return False
        total = sum(running.worked for running in look())
        if not looked or abs(total - worked) > BUSY * (now - looked):
            since = now
        looked, worked = now, total
        return now - since > STILL_S

    return is_still


if __name__ == "__main__":
    sys.stdin.read()
    end_all(int(sys.argv[1]), os.fsencode(sys.argv[2]))
