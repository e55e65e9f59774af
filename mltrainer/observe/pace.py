"""Every second fork and thread begins late: racing ones then come in another order, which may not matter.

Also loaded by its path into a program: it imports the standard library alone.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from types import FrameType
from typing import Any

THREADS_S, FORKS_S = 0.04, 0.25  # chosen by us: making a fork takes longer than making a thread


def begin(process: Any) -> None:
    """Make every second fork and thread begin late, from the first one on; call it after lines are traced, if they are."""
    process.on_fork(lambda: _wait(int(process.name.rpartition(".")[2]), FORKS_S))
    threading.settrace(_Threads(threading.gettrace()))


def _wait(number: int, seconds: float) -> None:
    if number % 2:
        time.sleep(seconds)


class _Threads:
    """Is called when a thread calls its first function, and hands over to the other tracers."""

    def __init__(self, traced: Any) -> None:
        self._traced, self._numbers = traced, itertools.count(1)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        sys.settrace(self._traced)
        _wait(next(self._numbers), THREADS_S)
        return self._traced(frame, event, argument) if self._traced is not None else None
