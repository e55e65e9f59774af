"""The ledger of the test split's openings: whole, the record's own, and not shorter than what was committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mltrainer.gates.digests import FileDigests
from mltrainer.records.finalization import Test
from mltrainer.records.openings import LEDGER_FILE, breaks, missing, openings_in
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import ledgers, marks
from mltrainer.workspace import Project, digest, read_if_whole

FOLDER = "finalization"


def ledger_faults(project: Project, test: Test) -> Iterator[str]:
    """Yield, as messages, the faults of the ledger: edited or missing openings, and a record and a ledger that disagree.

    Args:
        project: The project.
        test: What finalization's record says of the test split.
    """
    path = project.phase_dir(FOLDER) / LEDGER_FILE
    # What is not known is left out of one and null in the other: compared without it, both say the same.
    name, openings, splits = project.relative(path), [_without_none(row.written()) for row in test.openings], test.splits or {}
    if (number := breaks(openings)) is not None:
        yield f"opening {number} of the record does not follow from those before it: the ledger was edited"
    for split, rows in splits.items():
        if digest(rows.written()) != split:
            yield f"the rows of test split {split[:12]} are not those that its name is the digest of"
    if named := {row.rows_sha256 for row in test.openings if row.rows_sha256} - splits.keys():
        yield f"{len(named)} test splits that were opened have no rows in the record: {', '.join(sorted(named))[:60]}"
    wrote = read_if_whole(path).get("openings")
    if isinstance(wrote, list) and [_without_none(row) for row in wrote] != openings:
        yield f"{name} holds {len(wrote)} openings, and other ones than the {len(openings)} of the record"
    if openings and not path.is_file():
        yield f"{name} is missing, which holds the openings of the test split"


def _without_none(row: Any) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None} if isinstance(row, dict) else {}


def forgotten(project: Project, test: Test, digests: FileDigests) -> list[str]:
    """Return, in words, the openings that the commits before this one hold and the record does not.

    Where nothing was forgotten, git is not asked again before the repository or the record changes.
    """
    record = project.phase_dir(FOLDER) / "record.json"
    state = marks(project.root)
    if state is None or digests.agreed("ledger", record, state):
        return []
    try:
        # This branch alone: whoever reviews it has not fetched the others, and must come to the same verdict as its author.
        committed = ledgers(project.root, f"{project.relative(record.parent)}/{LEDGER_FILE}", every_branch=False)
    except GitError:
        return []
    lost = missing((row for part in committed for row in openings_in(part)), [row.written() for row in test.openings])
    if not lost:
        digests.agree("ledger", record, state)
    return [f"the opening by run {run}" for run in dict.fromkeys(str(row["run"]) for row in lost)]
