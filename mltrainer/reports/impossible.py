"""What two versions of a project's records cannot both say: the same run, or the same weights on the same data, ends alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mltrainer.records.common import Part
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization, Opening
from mltrainer.records.openings import missing
from mltrainer.records.run import Run
from mltrainer.workspace import PHASES

Records = Mapping[str, Envelope[Any]]
OF_A_RUN = (  # what a run's bits decide; times, memory and what is shown of it are none of it
    *("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "weights_sha256", "init_sha256"),
    *("steps", "chain", "metrics", "final", "first_loss", "parameters", "seed", "weights_tree_sha256"),
)


@dataclass(frozen=True)
class Contradiction:
    """A value of which both sides say another: `what` it is of, its `key`, and the value of each side."""

    what: str
    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class LostOpening:
    """An opening of the test split that one side alone knows; `change`: `lost`, or `replaced` by another of the same run."""

    run: str
    weights_sha256: str | None
    data_sha256: str | None
    change: str


def contradictions(now: Records, before: Records) -> list[Contradiction]:
    """Return the values on which both sides contradict each other.

    Args:
        now: Each phase's record, by phase.
        before: Those of the version that it is compared with; a run may stand in another phase's record there.
    """
    return [*_of_runs(now, before), *_of_weights(now, before)]


def _of_runs(now: Records, before: Records) -> Iterator[Contradiction]:
    """Yield the differing results of runs that stand on both sides and must have the same bits."""
    known = _runs(before)
    for name, run in _runs(now).items():
        other = known.get(name)
        if other and _has_the_same_bits(run, other):
            for key in OF_A_RUN:
                yield from _parts(f"run {name}", key, getattr(other, key), getattr(run, key))


def _has_the_same_bits(run: Run, other: Run) -> bool:
    """Return True if both runs must have the same bits: one numerics class, and for a program the same hash chain."""
    return (not run.program or run.chain == other.chain) and run.numerics_class == other.numerics_class


def _runs(records: Records) -> dict[str, Run]:
    runs = (getattr(records[phase].evidence, "run", None) for phase in PHASES if phase in records)
    return {run.id: run for run in runs if run}


def _parts(what: str, key: str, before: Any, after: Any) -> Iterator[Contradiction]:
    """Yield a difference, of a part or a mapping that of each entry."""
    old, new = (side.written() if isinstance(side, Part) else side for side in (before, after))
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield Contradiction(what, f"{key}.{name}", old.get(name), new.get(name))
    elif old != new:
        yield Contradiction(what, key, old, new)


def _of_weights(now: Records, before: Records) -> Iterator[Contradiction]:
    """Yield the differing test metrics of the same delivered weights, measured on the same data by the same code."""
    here, there = _final(now), _final(before)
    if here and there and here.test.samples and there.test.samples and _measured_by(here) == _measured_by(there):
        what = f"weights {here.delivered_sha256[:12]} on the test split"
        yield from _parts(what, "metrics", there.test.metrics, here.test.metrics)


def _final(records: Records) -> Finalization | None:
    return records["finalization"].evidence if "finalization" in records else None


def _measured_by(found: Finalization) -> tuple[str, ...]:
    """Return the digests that decide test metrics: of weights, data, and the task that measures."""
    run = found.run
    return (found.delivered_sha256, run.data_sha256, run.code_sha256, run.environment_sha256, run.numerics_class)


# --- the ledger -----------------------------------------------------------------------------------


def lost(now: Records, before: Records) -> list[LostOpening]:
    """Return the openings that the other side knows and this one does not: lost, or replaced by another."""
    here, there = (final.test.openings if (final := _final(side)) else [] for side in (now, before))
    by_run = {row.run: row for row in here}
    replaced = {
        row.run
        for row in there
        if (other := by_run.get(row.run))
        and any(known not in (None, told) for known, told in zip(_ledger(row), _ledger(other), strict=True))
    }
    gone = [row["run"] for row in missing(*([row.written() for row in rows] for rows in (there, here)))]
    rows = [(row, "lost") for row in there if row.run in gone and row.run not in replaced]
    rows += [(row, "replaced") for row in there if row.run in replaced]
    return [LostOpening(row.run, row.weights_sha256, row.data_sha256, change) for row, change in rows]


def _ledger(row: Opening) -> tuple[str | None, ...]:
    return (row.data_sha256, row.weights_sha256, row.purpose)
