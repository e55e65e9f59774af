"""Writes the ledger of tried runs, so that a run counts also when its folder is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from mltrainer.records.openings import LEDGER_FILE, openings_in
from mltrainer.records.tried import TEST, TRIED_FILE, Begun, Line, appended, parsed, read, runs
from mltrainer.reproducibility.evidence import JOB_FILE
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import contents
from mltrainer.workspace import PHASES, Project, locked, read_if_whole, write_text

LOCK = "tried.lock"


def note_tried(project: Project, *, openings: bool = False) -> list[Line]:
    """Write a line for each run whose folder is here, and return the ledger.

    A search's workers begin runs, too; these have their lines when the search ends, or when another run begins.

    Args:
        project: The project.
        openings: Whether to write a line for each opening of the test split, too: a stopped phase may not know its weights yet.

    Raises:
        GateError: The ledger was changed.
    """
    # Commands that begin runs at the same time each wait until the other has written.
    with locked(project.state_dir / LOCK, TRIED_FILE, may_wait=lambda: True):
        here = read(project)
        before = here or _committed(project)
        begun = [*_runs(project, before), *(_openings(project) if openings else ())]
        now = appended(before, begun, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        if now != here:
            write_text(project.root / TRIED_FILE, "".join(f"{line.text}\n" for line in now))
    return now


def _committed(project: Project) -> list[Line]:
    """Return the ledger of the last commit: somebody who removes all folders to begin again keeps the count."""
    try:
        held = contents(project.root, "HEAD", [TRIED_FILE])[TRIED_FILE]
    except GitError:  # no repository, or no commit yet
        return []
    return parsed(held) if held else []


def _runs(project: Project, before: Sequence[Line]) -> Iterator[Begun]:
    known = runs(before)
    new = [path for path in project.runs_dir.glob(f"*/{JOB_FILE}") if path.parent.name not in known]
    for path in sorted(new, key=lambda path: path.stat().st_mtime):
        job = read_if_whole(path)
        # A folder that was set aside has a longer name than its run, and an exploration has no phase.
        if job.get("run") == path.parent.name and job.get("phase") in PHASES:
            yield Begun(job["phase"], job["run"])


def _openings(project: Project) -> Iterator[Begun]:
    ledger = read_if_whole(project.phase_dir("finalization") / LEDGER_FILE)
    yield from (Begun(TEST, str(row["run"])) for row in openings_in(ledger))
