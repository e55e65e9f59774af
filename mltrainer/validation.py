"""What a validation found wrong, as pydantic says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and its place."""

    type: str
    loc: tuple[Any, ...]
    msg: str
    input: Any = None
    ctx: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The keys to it, with dots between; empty for the whole."""
        return ".".join(map(str, self.loc))


def faults_of(error: ValidationError) -> list[Fault]:
    """Return the faults that a validation found."""
    rows: Any = error.errors(include_url=False)
    return [Fault(**row) for row in rows]
