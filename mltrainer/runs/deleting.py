"""Removal of runs that nothing refers to; the ledger of tried runs counts them all the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.errors import InputError
from mltrainer.records.reading import RECORD_FILE, Record, read_record, read_records
from mltrainer.records.tried import TRIED_FILE
from mltrainer.reproducibility.evidence import JOB_FILE, RESULT_FILE, TEST_FILE
from mltrainer.reproducibility.git import GitError, files_at
from mltrainer.reproducibility.history import branches, committed_record
from mltrainer.reproducibility.packs import file_sizes, packed, read_packed, remove
from mltrainer.runs.tried import note_tried
from mltrainer.workspace import PHASES, Project, canonical, locked_project, phase_folder, read_if_whole

TEXTS = (".json", ".jsonl", ".md", ".txt", ".journal", ".yaml")
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
        InputError: A file refers to one of them, here or on another branch, it is packed, or it opened the test split; or another
            branch holds the ledger of tried runs, and there is none here.
        InUseError: A phase runs, or one of them trains.
        GateError: The ledger of tried runs was changed.
    """
    with locked_project(project):
        named_by = references(project, runs, leaving=runs)
        held = _branches(project)
        began = {record.sha256: f"the present record of {phase}" for phase, record in read_records(project).items()}
        began = {record.sha256: place for branch in held for place, record in branch.records.items()} | began
        for run in runs:
            _require_free(project, run, named_by.get(run, []), began)
        _require_ledger(project, held)
        found = [_measured(project.runs_dir / run) for run in dict.fromkeys(runs)]
        if not only_look:
            note_tried(project)  # before a folder goes: the run was tried, and counts
            for one in found:
                remove(project.runs_dir / one.run)
    return found


def _require_ledger(project: Project, branches: Sequence[_Branch]) -> None:
    """Require that no ledger begins here whose file another branch holds: git would not check that branch out over it."""
    holder = next((branch.name for branch in branches if branch.holds_ledger), None)
    if holder is not None and not (project.root / TRIED_FILE).exists():
        message = f"no run is deleted: the ledger of tried runs, {TRIED_FILE}, is not here, and branch {holder} holds it"
        raise InputError(message, hint=f"git switch {holder}; if the file was removed there: git checkout -- {TRIED_FILE}")


def _require_free(project: Project, run: str, named_by: Sequence[str], began: Mapping[str, str]) -> None:
    if (pack := packed(project.runs_dir).get(run)) is not None:
        raise InputError(f"run {run} is packed together with others", where=project.relative(pack), hint="mltrainer runs list")
    if named_by:
        more = f" and {len(named_by) - 1} more" if len(named_by) > 1 else ""
        message = f"run {run} is not deleted: {named_by[0]}{more} {'refer' if more else 'refers'} to it"
        raise InputError(message, hint=f"leave out {run}: of the runs that are named, all are removed or none")
    if record := began.get(str(read_if_whole(project.runs_dir / run / JOB_FILE).get("gate"))):
        message = f"run {run} is not deleted: it was begun under {record}, like the runs of a comparison"
        raise InputError(message, hint="mltrainer checkpoints prune removes checkpoints alone")
    if (project.runs_dir / run / TEST_FILE).exists():
        raise InputError(f"run {run} is not deleted: it opened the test split, which is counted", hint="mltrainer runs list")


def references(project: Project, runs: Collection[str], leaving: Collection[str] = ()) -> dict[str, list[str]]:
    """Return, for each of some runs, the files that name it; the ledger of tried runs is none, since it outlives the folders.

    Gates, records and reports do, configs, registered versions, exports, audits, searches that have not ended, the jobs of
    other runs, such as children, and the records of the local branches.

    Args:
        project: The project.
        runs: The runs.
        leaving: The runs whose jobs do not count, as they are removed, too.

    Raises:
        InputError: Git cannot say what the branches hold.
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
    here = {record.sha256 for record in read_records(project).values()}
    for branch in _branches(project):
        yield from ((place, canonical(record.data)) for place, record in branch.records.items() if record.sha256 not in here)
    for path in _files(project):
        if path.suffix in TEXTS and path.is_file():
            yield project.relative(path), path.read_bytes()


class _Branch(NamedTuple):
    """A local branch: its name, whether it holds a ledger of tried runs, and its records by their place in words."""

    name: str
    holds_ledger: bool
    records: dict[str, Record]


def _branches(project: Project) -> list[_Branch]:
    try:
        return [_branch(project.root, name) for name in branches(project.root)]
    except GitError as error:
        what = f"git cannot say which runs the branches refer to: {error}"
        raise InputError(what, where=".git", hint="see why: git branch --list") from error


def _branch(root: Path, ref: str) -> _Branch:
    paths, name = {f"{phase_folder(phase)}/{RECORD_FILE}": phase for phase in PHASES}, ref.removeprefix("refs/heads/")
    held = files_at(root, ref, [*paths, TRIED_FILE])
    records = {
        f"{path} of branch {name}": committed_record(root, ref, phase, held[path])
        for path, phase in paths.items()
        if path in held
    }
    return _Branch(name, TRIED_FILE in held, records)


def _jobs(project: Project, leaving: Collection[str]) -> Iterator[tuple[str, bytes]]:
    for path in sorted(project.runs_dir.glob(f"*/{JOB_FILE}")):
        if path.parent.name not in leaving:
            yield project.relative(path), path.read_bytes()
    for pack in sorted({*packed(project.runs_dir).values()}):
        for run, job in read_packed(pack, JOB_FILE):
            yield f"run {run} of {project.relative(pack)}", canonical(job)


def _files(project: Project) -> Iterator[Path]:
    ledger = project.root / TRIED_FILE
    yield from (project.file, *sorted((project.root / "configs").rglob("*")))  # start.weights may name a run
    yield from (path for path in sorted((project.root / "phases").rglob("*")) if path != ledger)
    for folder in sorted(path for path in project.state_dir.glob("*") if path.is_dir() and path.name not in REMADE):
        # The record of a search names its runs, once it has ended.
        ended = {path.parent for path in folder.glob(f"*/{RESULT_FILE}")} if folder.name == "studies" else set()
        yield from (path for path in sorted(folder.rglob("*")) if not ended.intersection(path.parents))


def _measured(folder: Path) -> Deleted:
    sizes = file_sizes(folder)
    return Deleted(folder.name, len(sizes), sum(sizes))
