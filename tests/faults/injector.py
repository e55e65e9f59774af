"""The calls of a process on files, counted and failed by `shim.c`, which is loaded before the C library."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "shim.c"
VARIABLE = "MLTRAINER_FAULTS"
KILL, CLOCK = -1, -2  # in place of an errno: the process dies; the clock goes back by a day

# The ways in which a call fails, by its kind: what Linux can answer. `FULL` is a disk that stays full until the command ends.
FULL = "full"
_DENIED = ("kill", "EIO", "EACCES")
WAYS = {
    "read": ("EIO", "EACCES"),  # dying before it is what dying before the next change is
    "open": _DENIED,
    "create": (*_DENIED, FULL),
    "empty": _DENIED,
    "write": ("kill", "EIO", FULL),
    "fsync": ("kill", "EIO"),
    "truncate": ("kill", "EIO"),
    "rename": _DENIED,
    "link": _DENIED,
    "unlink": _DENIED,
    "rmdir": _DENIED,
    "mkdir": (*_DENIED, FULL),
}


SPECIAL = {"kill": KILL, "clock": CLOCK, FULL: errno.ENOSPC}


class _Control(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_long),
        ("target", ctypes.c_long),
        ("error", ctypes.c_int),
        ("lasts", ctypes.c_int),
        ("is_active", ctypes.c_int),
        ("has_failed", ctypes.c_int),
        ("root", ctypes.c_char * 1024),
        ("log", ctypes.c_char * 1024),
        ("fired", ctypes.c_char * 4096),
    )


@dataclass(frozen=True)
class Call:
    """A call on a file.

    Attributes:
        number: Its place among all calls, from 1.
        op: Its kind, a key of `WAYS`.
        site: The line of mltrainer's that it comes from, or the name of another program.
        path: The file.
        to: The new name.
        at: The offset of a write, or the size after a truncation.
        data: The written bytes.
    """

    number: int
    op: str
    site: str
    path: str
    to: str = ""
    at: int = 0
    data: bytes = b""


def compiler() -> str | None:
    """Return the C compiler of this machine; None where there is none, and no fault can be planted."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def variables(folder: Path) -> dict[str, str]:
    """Build the shim in a folder, and return the variables of a process whose calls are to be counted."""
    library, control = folder / "shim.so", folder / "control"
    subprocess.run([str(compiler()), "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    control.write_bytes(bytes(ctypes.sizeof(_Control)))
    return {"LD_PRELOAD": str(library), VARIABLE: str(control)}


class Injector:
    """The control of a process that was started with `variables`, and of all that it starts."""

    def __init__(self) -> None:
        with open(os.environ[VARIABLE], "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._control = _Control.from_buffer(self._memory)

    @contextmanager
    def counting(self, root: Path, log: Path) -> Iterator[None]:
        """Write down each call below a folder."""
        with self._active(root, log=log):
            yield

    @contextmanager
    def failing(self, root: Path, number: int, way: str) -> Iterator[None]:
        """Fail a call below a folder, in one of the `WAYS`."""
        code = SPECIAL.get(way) or getattr(errno, way)
        with self._active(root, number, code, lasts=way == FULL):
            yield

    @contextmanager
    def _active(self, root: Path, target: int = 0, code: int = 0, lasts: bool = False, log: Path | None = None) -> Iterator[None]:
        control = self._control
        control.count, control.target, control.error, control.lasts = 0, target, code, lasts
        control.root, control.log, control.fired = str(root).encode(), str(log or "").encode(), b""
        control.has_failed, control.is_active = 0, 1
        try:
            yield
        finally:
            control.is_active = 0

    @property
    def fired(self) -> str:
        """The call that failed: kind, site and path; empty where the command ended before it."""
        return self._control.fired.decode(errors="replace")


def calls(log: Path) -> list[Call]:
    """Return the calls that were written down."""
    found, data, at = [], log.read_bytes() if log.exists() else b"", 0
    while at < len(data):
        end = data.index(b"\n", at)
        number, _, op, site, path, to, offset, size = data[at:end].decode(errors="surrogateescape").split("\t")
        at = end + 1 + int(size)
        found.append(Call(int(number), op, site, path, to, int(offset), data[end + 1 : at]))
        at += 1
    return sorted(found, key=lambda call: call.number)
