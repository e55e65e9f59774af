"""What a validation found wrong, each by its place."""

from __future__ import annotations

from pydantic import ValidationError

from mltrainer.validation import faults_of


def fault_lines(error: ValidationError, *within: str) -> list[str]:
    """Return each fault as `place: what is wrong`; `within` goes before each place."""
    # Each once: of a union pydantic tells the same of each member, whose name `path` leaves out.
    return list(dict.fromkeys(f"{path((*within, *fault.loc))}: {fault.msg}" for fault in faults_of(error)))


def path(location: tuple[int | str, ...]) -> str:
    """Return a fault's place, without the names of alternatives, which pydantic adds to it."""
    return ".".join(str(part) for part in location if not str(part).startswith("("))
