"""Removal of runs that nothing refers to; the ledger of tried runs counts them all the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.records.reading import RECORD_FILE, read_record, read_records
from mltrainer.records.tried import TRIED_FILE
from mltrainer.reproducibility.evidence import JOB_FILE, RESULT_FILE, TEST_FILE
from mltrainer.reproducibility.packs import below, packed, read_packed, remove
from mltrainer.runs.tried import note_tried
from mltrainer.workspace import Project, canonical, locked_project, read_if_whole

TEXTS = (".json", ".jsonl", ".md", ".txt", ".journal")
REMADE = ("runs", "cache", "probe", "references", "reproductions")  # folders of files that are made again where they are missing
_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])")


@dataclass(frozen=True)
class Deleted:
    """A run whose folder was removed, or would be.

    Attributes:
        run: The run's id.
        files: The number of files in its folder.
        bytes: The bytes of these files.
    """

    run: str
    files: int
    bytes: int

    def written(self) -> dict[str, Any]:
        """Return it as `runs delete --json` prints it."""
        return asdict(self)


def delete_runs(project: Project, runs: Sequence[str], *, only_look: bool = False) -> list[Deleted]:
    """Remove the folders of runs, or none of them where one is referred to.

    Args:
        project: The project.
        runs: The runs' ids.
        only_look: Whether nothing is removed.

    Raises:
        InputError: A file refers to one of them, it is packed, or it opened the test split.
        InUseError: A phase runs, or one of them trains.
        GateError: The ledger of tried runs was changed.
    """
    with locked_project(project):
        named_by = references(project, runs, leaving=runs)
        for run in runs:
            _require_free(project, run, named_by.get(run, []))
        found = [_measured(project.runs_dir / run) for run in dict.fromkeys(runs)]
        if not only_look:
            note_tried(project)  # before a folder goes: the run was tried, and counts
            for one in found:
                remove(project.runs_dir / one.run)
    return found


def _require_free(project: Project, run: str, named_by: Sequence[str]) -> None:
    if (pack := packed(project.runs_dir).get(run)) is not None:
        raise InputError(f"run {run} is packed together with others", where=project.relative(pack), hint="mltrainer runs list")
    if named_by:
        more = f" and {len(named_by) - 1} more" if len(named_by) > 1 else ""
        message = f"run {run} is not deleted: {named_by[0]}{more} {'refer' if more else 'refers'} to it"
        raise InputError(message, hint="delete runs that no file refers to: mltrainer runs list")
    began = read_if_whole(project.runs_dir / run / JOB_FILE).get("gate")
    if phase := next((phase for phase, record in read_records(project).items() if record.sha256 == began), None):
        message = f"run {run} is not deleted: it was begun under the present record of {phase}, like the runs of a comparison"
        raise InputError(message, hint="mltrainer checkpoints prune removes checkpoints alone")
    if (project.runs_dir / run / TEST_FILE).exists():
        raise InputError(f"run {run} is not deleted: it opened the test split, which is counted", hint="mltrainer runs list")


def references(project: Project, runs: Collection[str], leaving: Collection[str] = ()) -> dict[str, list[str]]:
    """Return, for each of some runs, the files that name it; the ledger of tried runs is none, since it outlives the folders.

    Gates, records and reports do, exports, audits, searches that have not ended, and the jobs of other runs, such as children.

    Args:
        project: The project.
        runs: The runs.
        leaving: The runs whose jobs do not count, as they are removed, too.
    """
    asked = {run.encode(): run for run in runs}
    found: dict[str, list[str]] = {}
    for path, content in (*_texts(project), *_jobs(project, leaving)):
        for name in sorted(asked.keys() & {*_ID.findall(content)}):
            if f"{project.relative(project.runs_dir)}/{asked[name]}/{JOB_FILE}" != path:  # its own job names it
                found.setdefault(asked[name], []).append(path)
    return found


def _texts(project: Project) -> Iterator[tuple[str, bytes]]:
    """Yield each file that may refer to a run, but for jobs, with its content."""
    search = read_record(project, "optimization")
    if search is not None:  # of a long search the trials are in a compressed file
        yield project.relative(project.phase_dir("optimization") / RECORD_FILE), canonical(search.evidence)
    for path in _files(project):
        if path.suffix in TEXTS and path.is_file():
            yield project.relative(path), path.read_bytes()


def _jobs(project: Project, leaving: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for path in sorted(project.runs_dir.glob(f"*/{JOB_FILE}")):
        if path.parent.name not in leaving:
            yield project.relative(path), path.read_bytes()
    for pack in sorted({*packed(project.runs_dir).values()}):
        for run, job in read_packed(pack, JOB_FILE):
            yield f"run {run} of {project.relative(pack)}", canonical(job)


def _files(project: Project) -> Iterator[Path]:
    ledger = project.root / TRIED_FILE
    yield from (path for path in sorted((project.root / "phases").rglob("*")) if path != ledger)
    for folder in sorted(path for path in project.state_dir.glob("*") if path.is_dir() and path.name not in REMADE):
        # The record of a search names its runs, once it has ended.
        ended = {path.parent for path in folder.glob(f"*/{RESULT_FILE}")} if folder.name == "studies" else set()
        yield from (path for path in sorted(folder.rglob("*")) if not ended.intersection(path.parents))


def _measured(folder: Path) -> Deleted:
    sizes = [path.lstat().st_size for path in below(folder) if not path.is_dir()]
    return Deleted(folder.name, len(sizes), sum(sizes))
