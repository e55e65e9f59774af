"""A run's use of the machine, measured from outside its process; nothing where the system does not report it."""

from __future__ import annotations

import functools
import os
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.workspace import read_whole

EVERY_S = 1.0
_HOLDER = re.compile(r"process (\d+) on (\S+)")


@dataclass(frozen=True)
class Gpu:
    """A GPU's load in percent, and its memory in use, in MiB."""

    percent: int
    memory_mb: int


@dataclass(frozen=True)
class Sample:
    """Memory of a process in MiB, the mean number of processors that it keeps busy, and the machine's GPUs."""

    memory_mb: float
    processors: float | None
    gpus: list[Gpu]


class Usage:
    """Memory and processors of the process that holds a lock file, about once a second.

    Args:
        lock: The lock file, which names its holder.
        device: The run's device; with "cuda" the machine's GPUs are reported, too.

    Attributes:
        last: The last sample; None before anything is known.
    """

    def __init__(self, lock: Path, device: str) -> None:
        self._lock, self._device = lock, device
        self._at: tuple[float, float] | None = None
        self.last: Sample | None = None

    def sample(self) -> Sample | None:
        """Return a new sample; None before the next one is due, or where the system gives none."""
        now = time.monotonic()
        if self._at is not None and now - self._at[0] < EVERY_S:
            return None
        found = _read(holder(self._lock))
        if found is None:
            return None
        memory_mb, busy_s = found
        before, self._at = self._at, (now, busy_s)
        processors = None if before is None else round(max(0.0, busy_s - before[1]) / (now - before[0]), 2)
        shown = gpus() if self._device == "cuda" else []
        self.last = Sample(round(memory_mb, 1), processors, shown)
        return self.last


def gpus() -> list[Gpu]:
    """Return the machine's GPUs; empty where NVML is not available."""
    try:
        import pynvml

        return [_gpu(pynvml, handle) for handle in _handles()]
    except Exception:  # no package, no driver, or one that answers only some of the calls
        return []


@functools.cache
def _handles() -> list[Any]:
    import pynvml

    pynvml.nvmlInit()
    return [pynvml.nvmlDeviceGetHandleByIndex(nr) for nr in range(pynvml.nvmlDeviceGetCount())]


def _gpu(pynvml: Any, handle: Any) -> Gpu:
    percent, memory = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu, pynvml.nvmlDeviceGetMemoryInfo(handle).used
    return Gpu(int(percent), int(memory) >> 20)


MOST_LOCK_BYTES = 10_000  # a lock names its holder in one line


def holder(lock: Path) -> int | None:
    """Return the process of this machine that holds a lock file, as the file names it; None for another machine's, or none."""
    try:
        found = _HOLDER.match(read_whole(lock, MOST_LOCK_BYTES).decode(errors="replace"))
    except OSError:
        return None
    # On a shared disk another machine may hold the lock: here, its number would be that of another process.
    return int(found[1]) if found and found[2] == socket.gethostname() else None


def _read(process: int | None) -> tuple[float, float] | None:
    """Return a process's memory in MiB and its CPU seconds; None where the system does not report them (Linux does)."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        # Counted after the last bracket, as the command's name before it may contain spaces and brackets.
        fields = Path(f"/proc/{process}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
    except (OSError, ValueError, IndexError):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, ticks / os.sysconf("SC_CLK_TCK")
