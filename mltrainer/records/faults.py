"""The faults that a validation found, each by its path."""

from __future__ import annotations

from pydantic import ValidationError

from mltrainer.validation import faults_of


def fault_lines(error: ValidationError, *within: str) -> list[str]:
    """Return each fault as `path: fault`; `within` goes before each path."""
    # Each once: pydantic reports the same fault for each member of a union, whose name `path` leaves out.
    return list(dict.fromkeys(f"{path((*within, *fault.loc))}: {fault.msg}" for fault in faults_of(error)))


def path(location: tuple[int | str, ...]) -> str:
    """Return a fault's path, without the names of alternatives, which pydantic adds to it."""
    return ".".join(str(part) for part in location if not str(part).startswith("("))
