"""How far a claim of reproducibility reaches: the level that was tested, with what tested it, and never one that is hoped for.

The levels, in the order of what they promise: the same bits in the same process (R0), on the same machine in a fresh
process (R1), on another machine with the same packages, thread count and instruction set (R2), on another family of CPU
under the portable numerics profile (R3); on another GPU model or version of torch (R4) only metrics can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NONE = "none"
MEANING = {
    "R1": "the same bits on this machine, in a fresh process",
    "R2": "the same bits on another machine with the same packages, threads and instruction set",
    "R3": "the same bits on another family of CPU",
}


@dataclass(frozen=True)
class Claim:
    """What was tested of a phase's runs.

    Attributes:
        level: "R1", or "none" where nothing was tested, or it did not hold.
        tested: What was trained again, in words.
        intended: The level that the settings aim at: R3 under the portable numerics profile, else R2.
    """

    level: str
    tested: str
    intended: str


def claim_of(record: Mapping[str, Any]) -> Claim:
    """Return the level of reproducibility that a phase's record shows as tested; a record with holes shows none."""
    evidence = record.get("evidence") or {}
    profiles = {evidence.get("numerics"), *((evidence.get(part) or {}).get("numerics") for part in ("config", "run"))}
    intended = "R3" if "portable" in profiles else "R2"
    held, tested = _TESTS.get(str(record.get("phase")), _nothing)(evidence)
    return Claim("R1" if held else NONE, tested, intended)


def _probe(evidence: Mapping[str, Any]) -> tuple[bool, str]:
    probe = evidence.get("probe") or {}
    steps, is_interrupted = f"the first {probe.get('steps')} steps, in fresh processes", probe.get("resumed_at") != 0
    if (evidence.get("program") or {}).get("resumed"):
        steps += f"; all steps, killed after step {probe.get('resumed_at')} and gone on with"
    elif is_interrupted:
        steps += ", once without and once with an interruption"
    return probe.get("identical") is True, steps


def _winner(evidence: Mapping[str, Any]) -> tuple[bool, str]:
    if evidence.get("skipped") is not False:
        return False, "nothing was trained here"
    return (evidence.get("replay") or {}).get("identical") is True, "the whole run of the best trial, in a fresh process"


def _final(evidence: Mapping[str, Any]) -> tuple[bool, str]:
    again = evidence.get("reproduction") or {}
    return again.get("identical") is True, f"all {again.get('steps_compared')} steps, in a fresh process"


def _nothing(_evidence: Mapping[str, Any]) -> tuple[bool, str]:
    return False, "this run was not trained again: mltrainer reproduce does it"


_TESTS = {"planning": _probe, "optimization": _winner, "finalization": _final}
