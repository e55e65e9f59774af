"""The evidence that a record's figures are bound to, for checks without drawing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltrainer.workspace import digest_of_plain

SOURCES = {  # the evidence that a phase's figures are drawn from
    "planning": ("schedule",),
    "baseline": ("run",),
    "optimization": ("metric", "space", "trials", "best", "baseline", "comparison"),
    "finalization": ("run",),
}


def data_digest(phase: str, evidence: Mapping[str, Any]) -> str | None:
    """Return the digest of the evidence that a phase's figures are drawn from, or None where it draws none."""
    return digest_of_plain({key: evidence.get(key) for key in SOURCES[phase]}) if phase in SOURCES else None
