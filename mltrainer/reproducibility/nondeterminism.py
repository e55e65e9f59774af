"""Record of clocks, entropy and threads in the project's own code, which can make two runs of the same code differ.

Nothing is replaced: the interpreter's profiling hook sees each call, so that a user's code runs as it always does, only
slower. Installed in a process that looks for the cause of a difference, and nowhere else.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

CLOCKS = frozenset(
    (
        *("time.time", "time.time_ns", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.monotonic_ns"),
        *("time.process_time", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
    )
)
ENTROPY = frozenset(("posix.urandom", "posix.getrandom", "uuid.uuid1", "uuid.uuid4", "torch.random.seed", "Generator.seed"))
ENTROPY_MODULES = ("secrets.", "random.SystemRandom.")  # NumPy's generators without a seed use these
UNSEEDED = {"random.Random.__init__": "x", "random.Random.seed": "a"}  # entropy only where this argument is None
THREADS = frozenset(
    ("threading.Thread.start", "concurrent.futures._base.Executor.map", "concurrent.futures.thread.ThreadPoolExecutor.submit")
)


class Witness:
    """Records the project's lines that use a clock, entropy or a thread.

    Args:
        root: The project's folder; other code's calls are not recorded.
    """

    def __init__(self, root: Path) -> None:
        self._root = f"{root.resolve()}{os.sep}"
        self._places: dict[CodeType, str | None] = {}
        self._calls: dict[tuple[str, str, int], dict[str, Any]] = {}

    def install(self) -> None:
        """Begin to record, in this thread and all later ones."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def remove(self) -> None:
        """Stop recording, in this thread and all later ones."""
        threading.setprofile(None)
        sys.setprofile(None)

    def calls(self) -> list[dict[str, Any]]:
        """Return the recorded calls, in the order of first use: `kind`, `call`, `where` (file:line) and `function`."""
        return list(self._calls.values())

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            caller: FrameType | None = frame
        elif event == "call":
            caller = frame.f_back
        else:
            return
        if caller is None or (place := self._place(caller.f_code)) is None:
            return
        name = _builtin_name(argument) if event == "c_call" else _name(frame)
        if (kind := _kind(name, frame if event == "call" else None)) is not None:
            row = {"kind": kind, "call": name, "where": f"{place}:{caller.f_lineno}", "function": caller.f_code.co_qualname}
            self._calls.setdefault((name, place, caller.f_lineno), row)

    def _place(self, code: CodeType) -> str | None:
        """Return the project's file of a code object, or None."""
        if code not in self._places:
            # Cached by code object: the hook runs at every call, and resolving a path needs the disk.
            file = os.path.realpath(code.co_filename)
            is_own = file.startswith(self._root) and "site-packages" not in file
            self._places[code] = os.path.relpath(file, self._root) if is_own else None
        return self._places[code]


def _builtin_name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    prefix = module or (owner if isinstance(owner, type) else type(owner)).__name__
    return f"{prefix}.{getattr(function, '__name__', '')}"


def _name(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"


def _kind(name: str, callee: FrameType | None) -> str | None:
    """Return the kind of a call that no seed decides (clock, threads or random draw), or None."""
    if name in CLOCKS:
        return "clock"
    if name in THREADS:
        return "threads"
    if name in ENTROPY or name.startswith(ENTROPY_MODULES):
        return "random draw"
    if name in UNSEEDED and callee is not None and callee.f_locals.get(UNSEEDED[name]) is None:
        return "random draw"
    return None
