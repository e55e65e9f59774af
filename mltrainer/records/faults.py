"""What a validation found wrong, each by its place."""

from __future__ import annotations

from pydantic import ValidationError


def fault_lines(error: ValidationError, *within: str) -> list[str]:
    """Return each fault as `place: what is wrong`; `within` goes before each place."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return list(dict.fromkeys(f"{path((*within, *fault['loc']))}: {fault['msg']}" for fault in found))


def path(location: tuple[int | str, ...]) -> str:
    """Return a fault's place, without the names of alternatives, which pydantic adds to it."""
    return ".".join(str(part) for part in location if not str(part).startswith("("))
