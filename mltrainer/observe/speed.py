"""The times of each step of an optimizer, by what its process does meanwhile; in place of the step's bits.

Nothing waits for a GPU: there the times are those of the process that queues the work. Also loaded by its path into a program:
it imports the standard library alone.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

_now = time.monotonic_ns


def begin(settings: Settings, process: Process) -> Speed:
    """Return the observer of this process."""
    return Speed(settings, process)


class Speed:
    """Notes the times of each step, in nanoseconds, as a line of the kind `chain`, by which steps are counted.

    A line has the time, the step's number, the time in data loaders, before the last backward pass, in backward passes and after
    them, the processor time of all threads, the time for which this one was ready and another program ran, and 1 where CUDA is
    used, else 0.

    Args:
        settings: `steps`, after which the process ends, 0 for never.
        process: Its name, and where the lines go.
    """

    def __init__(self, settings: Settings, process: Process) -> None:
        self._most, self._process = settings.steps, process
        self._begin()
        process.on_fork(self._begin)

    def _begin(self) -> None:
        self._file: Any = None
        self._step = 0
        self._inside: set[str] = set()
        self._restart()

    def _restart(self) -> None:
        self._spent = {"data": 0, "backward": 0}
        self._cpu, self._delay = time.process_time_ns(), _delayed()
        self._at = self._computed = _now()

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch = torch
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(self._stepped)
        torch.autograd.backward = self._timed(torch.autograd.backward, "backward")
        iterator = getattr(importlib.import_module("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if iterator is not None:
            iterator.__next__ = self._timed(iterator.__next__, "data")

    def _timed(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            if part in self._inside:  # a reentrant checkpoint's pass is part of the outer one, which is timed
                return call(*arguments, **keywords)
            begun = _now()
            self._inside.add(part)
            try:
                return call(*arguments, **keywords)
            finally:
                ended = _now()
                self._inside.discard(part)
                self._spent[part] += ended - begun
                if part == "backward":
                    self._computed = ended

        return timed

    def _stepped(self, _optimizer: Any, _arguments: Any, _keywords: Any) -> None:
        now = _now()
        self._step += 1
        data, backward = self._spent["data"], self._spent["backward"]
        after = now - self._computed if backward else 0
        before = max(0, now - self._at - data - backward - after)
        used, delayed = time.process_time_ns() - self._cpu, _delayed() - self._delay
        cuda = int(self._torch.cuda.is_initialized())
        if self._file is None:
            self._file = self._process.map("chain")
        self._file.write(f"{now} {self._step} {data} {before} {backward} {after} {used} {delayed} {cuda}\n".encode())
        if self._step == self._most:
            self._process.end()
        self._restart()


def _delayed() -> int:
    """Return the nanoseconds for which this thread was ready to run and did not; 0 where the system does not say (Linux does)."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
