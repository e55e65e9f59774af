"""The openings of a test split and the models they were for: counted here alone, for gate, report and model card.

Openings are counted for each test split, not for each state of the data: two splits that share a row are one, so that
another cell, another seed of the split or an emptied folder starts no new count. The ledger is a chain: each entry covers
the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mltrainer.workspace import digest, without_none

if TYPE_CHECKING:
    from mltrainer.records.finalization import Opening, RowDigests

LEDGER_FILE = "test_openings.json"  # in finalization's folder
Row = dict[str, Any]


@dataclass(frozen=True)
class Looks:
    """The looks at one test split.

    Attributes:
        openings: The number of its openings.
        models: The number of models it was opened for: the same weights are one, whichever runs they came from.
        others: The number of openings of test splits that share no row with it.
    """

    openings: int
    models: int
    others: int

    @property
    def sentence(self) -> str:
        """The sentence about the openings in gate, report and model card."""
        plural = "" if self.others == 1 else "s"
        others = f"; the ledger has {self.others:,} opening{plural} of other test splits" if self.others else ""
        if not self.openings:
            return f"The test split was not opened{others}"
        for_ = "this model alone" if self.models == 1 else f"{self.models} models"
        biased = ": what it shows is no longer an unbiased estimate" if self.models > 1 else ""
        often = {1: "once", 2: "twice"}.get(self.openings, f"{self.openings:,} times")
        return f"The test split was opened {often}, for {for_}{biased}{others}"


# --- which split ----------------------------------------------------------------------------------


def looks(openings: Sequence[Opening], splits: Mapping[str, RowDigests] | None, data: str, run: str) -> Looks:
    """Return the number of openings of the present test split, of models they were for, and of openings of other splits.

    Args:
        openings: All known openings.
        splits: Digests of the rows of the splits that they opened, by the digest that an opening names them by.
        data: The digest of the data of the present model's run.
        run: The id of that run.
    """
    # An opening whose data is not known may have been of these: it counts.
    ours = {place for place, row in enumerate(openings) if row.run == run or row.data_sha256 in (None, data)}
    left = set(range(len(openings))) - ours
    # Again until nothing is found: one split may share rows with a second that shares some with a third, and all are one.
    while found := {place for place in left if any(_is_one_split(openings[place], openings[one], splits or {}) for one in ours)}:
        ours, left = ours | found, left - found
    models = {openings[place].weights_sha256 or openings[place].run for place in ours}
    return Looks(len(ours), len(models), len(left))


def _is_one_split(one: Opening, other: Opening, splits: Mapping[str, RowDigests]) -> bool:
    """Return True if two openings are of splits that share a row; without digests of rows, if the data is the same."""
    if one.data_sha256 == other.data_sha256 or (one.rows_sha256 and one.rows_sha256 == other.rows_sha256):
        return True
    rows, others = splits.get(one.rows_sha256 or ""), splits.get(other.rows_sha256 or "")
    if rows is None or others is None:  # the rows of a split without digests are not known
        return False
    if rows.salt != others.salt:  # not comparable: counted, so that a changed salt hides nothing
        return True
    return not set(rows.digests.split()).isdisjoint(others.digests.split())


# --- the chain ------------------------------------------------------------------------------------


def openings_in(part: Any) -> list[Row]:
    """Return the openings in a ledger or a record; none where it was removed or damaged, which the gate reports."""
    rows = part.get("openings") if isinstance(part, dict) else None
    return [dict(row) for row in rows if isinstance(row, dict) and row.get("run")] if isinstance(rows, list) else []


def chained(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the ledger's entries, numbered, each with a digest that covers it and all before it."""
    found: list[Row] = []
    before = None
    for number, row in enumerate(rows, 1):
        entry = {**{key: value for key, value in without_none(**row).items() if key != "chain"}, "nr": number}
        before = digest([before, entry])
        found.append({**entry, "chain": before})
    return found


def breaks(rows: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of the first entry that does not follow from those before, or None; older ledgers have no chain."""
    if not any(row.get("chain") for row in rows):
        return None
    pairs = zip(rows, chained(rows), strict=True)
    return next((number for number, (row, made) in enumerate(pairs, 1) if without_none(**row) != made), None)


def identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return an opening's identity: the digest of its data, and that of its weights, or its run where none is known."""
    return (row.get("data_sha256"), row.get("weights_sha256") or row.get("run"))


def missing(before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the openings that were known before and are not among those of now."""
    rows = list(now)
    # A row without weights is known by its run alone; one of the same run that has them is the same opening.
    known, runs = {identity(row) for row in rows}, {row.get("run") for row in rows if not row.get("weights_sha256")}
    return [dict(row) for row in before if identity(row) not in known and row.get("run") not in runs]


def merged(*sources: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return the openings of several sources, each once, chained in the order of the first source and then the others.

    The same weights on the same data count once, whichever runs they came from: the second look showed nothing new.
    """
    # By run first: the same opening may be in one source without its weights, and so under another identity.
    by_run: dict[str, Row] = {}
    for row in (row for source in sources for row in source):
        by_run[row["run"]] = {**row, **without_none(**by_run.get(row["run"], {}))}
    once: dict[tuple[Any, ...], Row] = {}
    for row in by_run.values():
        once[identity(row)] = {**row, **without_none(**once.get(identity(row), {}))}
    return chained(once.values())
