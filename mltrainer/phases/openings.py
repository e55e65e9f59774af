"""All known openings of a test split: from the ledger, the last record, git's history and the tested runs.

Emptying the folders of a phase and of the runs does not close the split again: openings that were committed still count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.phases.context import Context
from mltrainer.records.openings import LEDGER_FILE, Row, merged, missing, openings_in
from mltrainer.records.tried import opened, read
from mltrainer.reproducibility.evidence import TEST_FILE
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import ledgers
from mltrainer.runs.contract import JOB_FILE, run_id
from mltrainer.workspace import digest, read_if_whole, read_json

ROWS = {"samples", "salt", "digests"}


@dataclass(frozen=True)
class Ledger:
    """The known openings of a test split.

    Attributes:
        openings: The openings, each once, chained.
        splits: Digests of the rows of the splits that they opened, by the digest that an opening names them by.
    """

    openings: list[Row]
    splits: dict[str, Row]

    @property
    def recorded(self) -> dict[str, Any]:
        """The entries in the ledger's file and in the record."""
        return {"openings": self.openings, "splits": self.splits}


def known_openings(ctx: Context) -> Ledger:
    """Return every known opening; those that only git's history still holds are reported."""
    ledger, tested = read_if_whole(ctx.folder / LEDGER_FILE), _tested(ctx)
    record = ctx.last.test.written() if ctx.last else {}
    committed = _committed(ctx)
    here = merged(*map(openings_in, (ledger, record, *tested)))
    lost = missing([row for part in committed for row in openings_in(part)], here)
    if lost:
        ctx.note(f"git's history holds {len(lost)} more of the test split's openings than the files here: they count")
    # The ledger first: its order and entries are kept, and the others add missing ones.
    sources = (ledger, record, *committed, *tested, _tried(ctx))
    splits = {name: rows for part in sources for name, rows in _splits(part)}
    return Ledger(merged(*map(openings_in, sources)), splits)


def salt_of(ctx: Context, ledger: Ledger) -> str:
    """Return the salt of the project's digests of rows: the ledger's where it has one, also after a change of the id."""
    earlier = next((str(rows["salt"]) for rows in ledger.splits.values()), None)
    project = load_project(ctx.project.file)
    return earlier or digest(["test rows", project.id or project.name])[:32]


def _splits(part: Any) -> Iterator[tuple[str, Row]]:
    """Yield the rows of the splits in a ledger or a record whose name is their digest."""
    found = part.get("splits") if isinstance(part, dict) else None
    for name, rows in found.items() if isinstance(found, dict) else ():
        # Rows that were edited under their name would make one split look like two.
        if isinstance(rows, dict) and rows.keys() == ROWS and digest(rows) == name:
            yield name, rows


def _committed(ctx: Context) -> list[Any]:
    """Return the ledgers in git's history; empty where it cannot be asked, which is reported."""
    try:
        return ledgers(ctx.project.root, f"{ctx.project.relative(ctx.folder)}/{LEDGER_FILE}")
    except GitError as error:
        if str(error) != "not a git repository":
            ctx.note(f"openings of the test split are not looked for in git's history: {error}")
        return []


def _tested(ctx: Context) -> list[dict[str, Any]]:
    """Return a ledger of one opening for each tested run, by the run's own files, also of runs that were set aside."""
    return [_of_run(path.parent) for path in sorted(ctx.project.runs_dir.glob(f"*/{TEST_FILE}"))]


def _tried(ctx: Context) -> dict[str, Any]:
    """Return a ledger of the openings in the ledger of tried runs, which knows no more of them than the run."""
    unknown = {"data_sha256": None, "weights_sha256": None, "rows_sha256": None, "purpose": "final evaluation"}
    return {"openings": [{"run": run, **unknown} for run in sorted(opened(read(ctx.project)))]}


def _of_run(folder: Path) -> dict[str, Any]:
    """Return the opening by a tested run; the run's name proves its data."""
    # A run that was set aside has its id before the first dot.
    run, wrote = folder.name.partition(".")[0], read_if_whole(folder / TEST_FILE)
    try:
        contract = read_json(folder / JOB_FILE)["contract"]
        data = contract["data_sha256"] if run_id(contract) == run else None
    except (InputError, KeyError, TypeError):
        data = None
    rows = wrote.get("rows")
    name = digest(rows) if isinstance(rows, dict) else None
    opening = {"run": run, "data_sha256": data, "weights_sha256": wrote.get("weights_sha256"), "purpose": "final evaluation"}
    return {"openings": [{**opening, "rows_sha256": name}], "splits": {name: rows} if name else {}}
