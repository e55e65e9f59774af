"""What two versions of a project's records cannot both say: the same run, or the same weights on the same data, ends alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mltrainer.records.openings import missing
from mltrainer.reports.values import at
from mltrainer.workspace import PHASES

Found = Mapping[str, Any]
Row = dict[str, Any]
OF_A_RUN = (  # what a run's bits decide; times, memory and what is shown of it are none of it
    *("config_sha256", "data_sha256", "code_sha256", "environment_sha256", "weights_sha256", "init_sha256"),
    *("steps", "chain", "metrics", "final", "first_loss", "parameters", "seed"),
)
LEDGER = ("data_sha256", "weights_sha256", "purpose")


def contradictions(now: Mapping[str, Found], before: Mapping[str, Found]) -> list[Row]:
    """Return the values on which both sides contradict each other: `what` it is of, `key`, and the value of each side.

    Args:
        now: The content of each phase's record, by phase.
        before: That of the version that it is compared with; a run may stand in another phase's record there.
    """
    return [*_of_runs(now, before), *_of_weights(now, before)]


def _of_runs(now: Mapping[str, Found], before: Mapping[str, Found]) -> Iterator[Row]:
    """Yield the differing results of runs that stand on both sides and must have the same bits."""
    known = _runs(before)
    for run, found in _runs(now).items():
        other = known.get(run, {})
        for key in OF_A_RUN if _has_the_same_bits(found, other) else ():
            if key in other and key in found and other[key] != found[key]:
                yield from _parts(f"run {run}", key, other[key], found[key])


def _has_the_same_bits(run: Found, other: Found) -> bool:
    """Return True if both runs must have the same bits: one numerics class, and for a program the same hash chain."""
    is_decided = not run.get("program") or run.get("chain") == other.get("chain")
    return is_decided and run.get("numerics_class") == other.get("numerics_class")


def _runs(records: Mapping[str, Found]) -> dict[str, Found]:
    runs = (at(records[phase], "evidence.run") for phase in PHASES if phase in records)
    return {run["id"]: run for run in runs if run}


def _parts(what: str, key: str, before: Any, after: Any) -> Iterator[Row]:
    """Yield a difference, of a mapping each entry's."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield {"what": what, "key": key, "before": before, "after": after}
        return
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield {"what": what, "key": f"{key}.{name}", "before": before.get(name), "after": after.get(name)}


def _of_weights(now: Mapping[str, Found], before: Mapping[str, Found]) -> Iterator[Row]:
    """Yield the differing test metrics of the same delivered weights, measured on the same data by the same code."""
    here, there = (_tested(side.get("finalization")) for side in (now, before))
    if here and there and here["by"] == there["by"]:
        yield from _parts(f"weights {str(here['by'][0])[:12]} on the test split", "metrics", there["metrics"], here["metrics"])


def _tested(record: Found | None) -> Row | None:
    """Return the test metrics with what decides them: weights, data, and the task that measures."""
    if record is None or not at(record, "evidence.test.samples"):
        return None
    evidence = record["evidence"]
    measured_by = [at(evidence, f"run.{key}") for key in ("data_sha256", "code_sha256", "environment_sha256", "numerics_class")]
    return {"by": [evidence["delivered_sha256"], *measured_by], "metrics": evidence["test"]["metrics"]}


# --- the ledger -----------------------------------------------------------------------------------


def openings(record: Found | None) -> list[Row]:
    """Return the openings of a test split that finalization's record tells of."""
    return [dict(row) for row in at(record, "evidence.test.openings") or []] if record else []


def lost(now: Mapping[str, Found], before: Mapping[str, Found]) -> list[Row]:
    """Return the openings that the other side knows and this one does not: each with `change`, lost or replaced by another."""
    here, there = (openings(side.get("finalization")) for side in (now, before))
    by_run = {row["run"]: row for row in here}
    gone = [{**row, "change": "lost"} for row in missing(there, here)]
    for row in there:
        other = by_run.get(row["run"])
        if other and any(row.get(key) is not None and row.get(key) != other.get(key) for key in LEDGER):
            gone = [each for each in gone if each["run"] != row["run"]] + [{**row, "change": "replaced"}]
    return [{key: row.get(key) for key in ("run", "weights_sha256", "data_sha256", "change")} for row in gone]
