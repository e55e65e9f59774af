"""What one of several processes says of itself every second: that it lives, in which step, and at which line."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from mltrainer.executors.executor import RENDEZVOUS, stack_file
from mltrainer.executors.process_tree import cpu_s, descendants
from mltrainer.executors.signs import Sign
from mltrainer.tasks.user_code import PACKAGE, user_line

ALIVE_S = 1.0  # between two signs of life
BUSY = 0.01  # of a core, chosen by us: threads that only look at the clock use less
COLLECTIVES, LOGGER = "/torch/distributed/", "c10d_logger.py"
LONGEST = 300  # characters of a line's place: a sign must fit into what a pipe writes at once


class Now:
    """Where this process is, as the trainer says it.

    Attributes:
        step: The training step; None before the first one.
        exchanges: The number of the trainer's exchanges so far.
        exchange: The name of the last one.
        waits: Whether it is in that one.
        waited_s: Seconds spent in them since the first step.
        begun: The value of `time.perf_counter()` at the first step.
    """

    def __init__(self) -> None:
        self.step: int | None = None
        self.begun = math.inf
        self.exchange, self.exchanges, self.waits, self.waited_s = "", 0, False, 0.0

    def take(self, step: int) -> None:
        """Say that a step begins."""
        if self.step is None:
            self.begun, self.waited_s = time.perf_counter(), 0.0
        self.step = step

    @contextlib.contextmanager
    def exchanging(self, name: str) -> Iterator[None]:
        """Say that this process waits for others."""
        begun = time.perf_counter()
        self.exchange, self.exchanges, self.waits = name, self.exchanges + 1, True
        try:
            yield
        finally:
            self.waits, self.waited_s = False, self.waited_s + time.perf_counter() - begun


NOW = Now()


def begin(descriptor: int, rank: int) -> None:
    """Begin to show life, and write the stacks of all threads to a file whenever SIGUSR1 comes.

    Args:
        descriptor: The pipe of signs.
        rank: This process's rank.
    """
    if RENDEZVOUS in os.environ:
        stacks = open(stack_file(Path(os.environ[RENDEZVOUS]).parent, rank), "w")  # noqa: SIM115 - open until the process ends
        faulthandler.register(signal.SIGUSR1, stacks)
    root = Path.cwd()
    threading.Thread(target=_show_life, args=(descriptor, rank, root), daemon=True).start()


def _show_life(descriptor: int, rank: int, root: Path) -> None:
    """Write a sign every second, until nobody reads it."""
    work = _Work()
    with contextlib.suppress(OSError):
        while True:
            os.write(descriptor, _sign(rank, root, work.goes_on()).line())
            time.sleep(ALIVE_S)


def _sign(rank: int, root: Path, works: bool) -> Sign:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    collective = _collective(frame) or (NOW.exchange if NOW.waits else "")
    place, works = _place(frame, root), works or NOW.step is None
    training_s = max(0.0, time.perf_counter() - NOW.begun)
    return Sign(rank, NOW.step, place, collective, NOW.exchanges, NOW.exchange, works, training_s, NOW.waited_s)


class _Work:
    """Whether this process, without the thread that asks, and those that it started go on."""

    def __init__(self) -> None:
        self._seen, self._used, self._below, self._at = (NOW.step, NOW.exchanges), 0.0, 0.0, time.monotonic()

    def goes_on(self) -> bool:
        seen, used, now = (NOW.step, NOW.exchanges), time.process_time() - time.thread_time(), time.monotonic()
        least = BUSY * (now - self._at)
        works = seen != self._seen or used - self._used > least or _waits_for_disk()
        if not works:  # looked at only then: it takes milliseconds
            below = sum(cpu_s(pid) for pid in descendants(os.getpid()))
            works, self._below = abs(below - self._below) > least, below
        self._seen, self._used, self._at = seen, used, now
        return works


def _waits_for_disk() -> bool:
    """Return True while the main thread waits for a disk, as a large checkpoint makes it; False where nothing says so."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/self/task/{os.getpid()}/stat").read_text().rpartition(") ")[2].startswith("D")
    return False


def _place(frame: FrameType | None, root: Path) -> str:
    """Return the innermost line of the project's, else of mltrainer's that is not of the exchange of numbers itself."""
    if frame is None:
        return ""
    if (users := user_line(root, frame)) is not None:
        return users[-LONGEST:]
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE) and path.name not in ("exchange.py", "ranks.py"):
            return f"{path.relative_to(PACKAGE.parent).as_posix()}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _collective(frame: FrameType | None) -> str:
    """Return the name of torch's collective operation on a stack, or an empty text."""
    name = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if COLLECTIVES in path and not path.endswith(LOGGER):
            name = frame.f_code.co_name
        frame = frame.f_back
    return name
