"""The faults that a validation found, from pydantic's errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pydantic import ValidationError


class Fault(NamedTuple):
    """A fault, and its place."""

    type: str
    loc: tuple[Any, ...]
    msg: str
    input: Any = None
    ctx: Mapping[str, Any] = MappingProxyType({})

    @property
    def place(self) -> str:
        """The dotted path of keys to the fault; empty for a fault of the whole."""
        return ".".join(map(str, self.loc))


def faults_of(error: ValidationError) -> list[Fault]:
    """Return the faults that a validation found."""
    rows: Any = error.errors(include_url=False)
    return [Fault(**row) for row in rows]
