"""Waiting for another process or thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until(holds: Callable[[], Any], seconds: float = 40.0) -> None:
    """Wait until something holds; processes that tests start to outlive others go on for at least 60 s."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it does not hold after {seconds:g} s"
        time.sleep(0.01)


def has_ended(pid: int | str) -> bool:
    """Return whether a process is gone, or only waits for its parent to read its exit status."""
    try:
        return " Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
