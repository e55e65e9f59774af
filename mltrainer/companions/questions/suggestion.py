"""A value to try, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Suggestion:
    """A value to try, or None, and why."""

    value: float | None
    reason: str


def rounded(rate: float) -> float:
    """Return a learning rate to two significant digits."""
    return float(f"{rate:.2g}")
