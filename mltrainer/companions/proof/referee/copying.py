"""A clean copy of a project: the files of its commit, and beside them the referee's own data in the place of the author's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mltrainer.companions.proof.referee.closing import RECORDS
from mltrainer.errors import GateError, InputError
from mltrainer.handbook import page_paths
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import read_record
from mltrainer.reproducibility.git import GitError, Repository, checked_out, locate
from mltrainer.reproducibility.git import run as git
from mltrainer.runs.references import SKLEARN
from mltrainer.workspace import PROJECT_FILE, Project, machine_faults

ADDRESSES = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
CLONING_S = 3600.0  # chosen by us: a large repository, by a slow network


@dataclass(frozen=True)
class Copy:
    """A clean copy.

    Attributes:
        project: The project.
        commit: Its commit; None: the source was no git repository.
        record: The author's record of finalization.
        work: The folder of the copy, and of the data beside it.
    """

    project: Project
    commit: str | None
    record: Envelope[Finalization]
    work: Path


def clean_copy(source: str, work: Path) -> Copy:
    """Copy what a project's author committed.

    Args:
        source: A folder of the project, or a git address whose repository has one project.
        work: A folder, which is made.

    Raises:
        InputError: There is no project, or it has a link that `refuse_links` refuses.
        GateError: The project has no sound record of finalization, or its runs are committed.
    """
    work = work.resolve()
    place = work / "up" / "up" / "up" / "copy"  # a source of data may begin with ../
    place.parent.mkdir(parents=True)
    project = Project(_copied_project(source, place))
    refuse_links(place, project)
    if os.path.lexists(project.state_dir):
        raise GateError("the runs of this machine are committed", where=project.state_dir.name, hint="git rm them")
    commit = checked_out(project.root) if (place / ".git").exists() else None
    return Copy(project, commit, _finalization(project), work)


def _copied_project(source: str, place: Path) -> Path:
    """Return the project's folder in a clone, or in a copy of a folder that is in no git repository."""
    folder = Path(source)
    if not folder.is_dir():
        if source.startswith("-") or ":" not in source:
            raise InputError("no such folder", where=source, hint="name a clone, a folder or a git address")
        return _with_project(_cloned(source, place), source)
    if (folder / "HEAD").is_file() and (folder / "objects").is_dir():  # a bare repository
        return _with_project(_cloned(str(folder.resolve()), place), source)
    repository = _repository(folder)
    if repository is not None:
        return _with_project(_cloned(str(repository.top), place) / repository.prefix, source)
    shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns(".mltrainer", ".git"))
    return _with_project(place, source)


def _cloned(address: str, place: Path) -> Path:
    """Return the folder of a clone."""
    try:
        git(
            place.parent,
            *("clone", "--quiet", "--no-hardlinks", "--", address, str(place)),
            variables=ADDRESSES,
            timeout_s=CLONING_S,
        )
    except GitError as error:
        raise InputError(f"cannot be cloned: {error}", where=address, hint="give an address that git clone can read") from error
    return place


def _repository(folder: Path) -> Repository | None:
    """Return the repository around a folder; None if there is none.

    Raises:
        InputError: Git cannot say.
    """
    try:
        return locate(folder)
    except GitError as error:
        if str(error) == "not a git repository":
            return None
        raise InputError(str(error), where=str(folder), hint=f"see why: git -C {folder} status") from error


def _with_project(folder: Path, source: str) -> Path:
    found = [path.parent for path in sorted(folder.rglob(PROJECT_FILE))] if not (folder / PROJECT_FILE).exists() else [folder]
    if len(found) != 1:
        there = ", ".join(str(path.relative_to(folder)) for path in found) or "none"
        hint = "name the project's folder in the repository" if found else "the author commits the project"
        raise InputError(expected=f"one committed project ({PROJECT_FILE})", found=there, where=source, hint=hint)
    return found[0].resolve()


def refuse_links(copy: Path, project: Project) -> None:
    """Refuse committed links by which code could reach files of the referee's, or records at a path that is not hidden.

    Raises:
        InputError: A link leads out of the copy, or the folder of the records is or contains a link.
    """
    for folder, folders, files in os.walk(copy):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if not path.is_symlink():
                continue
            named = f"{path.relative_to(copy)} -> {os.readlink(path)}"
            if not Path(os.path.realpath(path)).is_relative_to(copy.resolve()):
                raise InputError(f"a committed link leads out of the copy: {named}", hint="the author commits the file itself")
            if path.is_relative_to(project.root / RECORDS[0]):
                raise InputError(f"records must not be links: {named}", hint="the author commits the file itself")


def _finalization(project: Project) -> Envelope[Finalization]:
    record = read_record(project, "finalization")
    if record is None:
        place, hint = str(project.phase_dir("finalization")), "the author types mltrainer run, and commits phases/"
        raise GateError("no record of finalization is committed", where=place, hint=hint)
    if record.typed is None:
        what = record.faults[0] if record.faults else "the record of finalization cannot be read"
        raise GateError(what, hint="ask the author for the record as mltrainer wrote it")
    return record.typed


def remove_own_tools(project: Project) -> None:
    """Remove a copy's own pages of shipped tools: they could set variables of the processes that train and measure."""
    for path in page_paths():
        if path.startswith("tools/"):
            (project.root / path).unlink(missing_ok=True)


def placed_data(copy: Copy, given: Sequence[Path]) -> list[Path]:
    """Copy the referee's files to where the config expects the data, and return these places.

    Args:
        copy: The clean copy.
        given: The files; of several sources of the config each is recognized by its name.

    Raises:
        InputError: A file is missing, or the config reads no such file, or a path in it leads elsewhere.
    """
    sources = data_paths(copy)
    placed = []
    for name, path in sources.items():
        fits = [one for one in given if one.name == path.name] or (list(given) if len(given) == len(sources) == 1 else [])
        if not fits and not path.exists():
            raise InputError(f"the config reads {name}, which is not committed", where="--data", hint=f"--data .../{path.name}")
        if fits:
            placed.append(_copied(fits[0], path, copy.work))
    if len(placed) < len(given):
        what = f"the config reads {', '.join(sources) or 'no file'}, not each of the given files"
        raise InputError(what, where="--data", hint="give only files that it reads, under their names")
    return placed


def data_paths(copy: Copy) -> dict[str, Path]:
    """Return the path in the copy of each file or folder of the config's data, by its path in the config."""
    root, named = copy.project.root, copy.record.evidence.config.get("data") or {}
    values = [value for key in ("source", "validation", "test") if (value := named.get(key)) and not value.startswith(SKLEARN)]
    return {value: Path(os.path.normpath(root / value)) for value in values}


def _copied(given: Path, place: Path, work: Path) -> Path:
    # Resolved: a committed link must not lead the referee's data elsewhere.
    if not place.parent.resolve().is_relative_to(work.resolve()) or place.is_symlink():
        raise InputError(f"data.source leads out of the copy: {place}", where=PROJECT_FILE, hint="commit a path in or beside it")
    if not given.exists():
        raise InputError("no such file or folder", where=str(given), hint="name your own copy of the data with --data")
    with machine_faults(str(place)):
        place.parent.mkdir(parents=True, exist_ok=True)
        if given.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(given, place)
        else:
            shutil.copyfile(given, place)
    return place
