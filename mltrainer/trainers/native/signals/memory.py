"""The memory of a training: the process's, as the system counts it, and the part in use."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from pathlib import Path

import torch

from mltrainer.trainers.result import peak_rss_mb

MIB = 2**20


class _Mallinfo(ctypes.Structure):
    """glibc's description of its heap (malloc.h), in bytes except for the counts of blocks."""

    _fields_ = [  # ctypes requires this name
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def memory_mb() -> float:
    """Return the process's present memory, in MiB; its peak memory if the system does not provide that."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return peak_rss_mb()
    return pages * mmap.PAGESIZE / MIB


def allocated_mb() -> float | None:
    """Return the memory in use now, in MiB: C's heap, which holds tensors and arrays, and the GPU's.

    Unlike the process's memory, it shows growth within freed memory. None if the C library does not provide it; glibc does from
    2.33 on.
    """
    asked = _mallinfo()
    if asked is None:
        return None
    found = asked()
    on_gpu = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    return float(found.uordblks + found.hblkhd + on_gpu) / MIB


@functools.cache
def _mallinfo() -> Callable[[], _Mallinfo] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    function.restype = _Mallinfo
    return function
