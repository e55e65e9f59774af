"""The level of a reproducibility claim: always a tested level, with its tests, never an expected one.

The levels, from the weakest promise to the strongest: the same bits in the same process (R0), on the same machine in a fresh
process (R1), on another machine with the same packages, thread count and instruction set (R2), on another family of CPU
under the portable numerics profile (R3); on another GPU model or version of torch (R4) only metrics can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.records.common import Part
from mltrainer.records.partial import partial

NONE = "none"
LEFT = "the files that the whole program left, in fresh processes; no step was traced"
MEANING = {
    "R1": "the same bits on this machine, in a fresh process",
    "R2": "the same bits on another machine with the same packages, threads and instruction set",
    "R3": "the same bits on another family of CPU",
}


@dataclass(frozen=True)
class TestedLevel:
    """The level of reproducibility that a phase's runs were tested for.

    Attributes:
        level: "R1", or "none" where nothing was tested, or it did not hold.
        tested: Repeated trainings, in words.
        intended: Level that the settings aim at: R3 under the portable numerics profile, else R2.
    """

    level: str
    tested: str
    intended: str


class _Part(Part):
    """The entries of a part of evidence that a level follows from; any may be missing."""

    numerics: str | None
    steps: int | None
    steps_compared: int | None
    identical: bool | None
    resumed: dict[str, Any]
    resumed_at: int | None
    left: dict[str, Any]


class _Run(_Part):
    """The entries of a run that a level follows from."""

    program: _Part


class _Evidence(Part):
    """The entries of a phase's evidence that a level follows from."""

    numerics: str | None
    skipped: bool | None
    config: _Part
    run: _Run
    probe: _Part
    program: _Part
    replay: _Part
    reproduction: _Part


class _Record(Part):
    """The entries of a record that a level follows from."""

    phase: str | None
    evidence: _Evidence


def level_of(record: Mapping[str, Any]) -> TestedLevel:
    """Return the level of reproducibility that a phase's record shows as tested; a record with holes shows none."""
    parts = partial(_Record, record)
    evidence = parts.evidence
    intended = "R3" if "portable" in (evidence.numerics, evidence.config.numerics, evidence.run.numerics) else "R2"
    held, tested = _TESTS.get(str(parts.phase), _nothing)(evidence)
    return TestedLevel("R1" if held else NONE, tested, intended)


def _probe(evidence: _Evidence) -> tuple[bool, str]:
    probe, steps = evidence.probe, f"the first {evidence.probe.steps} steps, in fresh processes"
    if evidence.program.left:
        return probe.identical is True, LEFT
    if evidence.program.resumed:
        steps += f"; all steps, killed after step {probe.resumed_at} and gone on with"
    elif probe.resumed_at != 0:
        steps += ", once without and once with an interruption"
    return probe.identical is True, steps


def _winner(evidence: _Evidence) -> tuple[bool, str]:
    if evidence.skipped is not False:
        return False, "nothing was trained here"
    return evidence.replay.identical is True, "the whole run of the best trial, in a fresh process"


def _final(evidence: _Evidence) -> tuple[bool, str]:
    again = evidence.reproduction
    if evidence.run.program.left:
        return again.identical is True, LEFT
    return again.identical is True, f"all {again.steps_compared} steps, in a fresh process"


def _nothing(_evidence: _Evidence) -> tuple[bool, str]:
    return False, "this run was not trained again: mltrainer reproduce does it"


_TESTS = {"planning": _probe, "optimization": _winner, "finalization": _final}
