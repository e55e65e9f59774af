"""A project copied to an object store, and back: only what changed, and each file by its digest before it replaces any."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from mltrainer.checkpointing.manifest import step_of
from mltrainer.configs.project import load_project
from mltrainer.errors import InputError
from mltrainer.follow.progress import shown
from mltrainer.gates.digests import FileDigests
from mltrainer.leftovers import sweep
from mltrainer.project.object_store import ChangedError, Moved, ObjectStore
from mltrainer.project.stored_files import (
    ARRIVING,
    KNOWN_FILE,
    STORE_LOCK,
    Listed,
    Manifest,
    Merged,
    data_rows,
    files_of,
    is_declared,
    is_evidence,
    is_part_of,
    link_on_the_way,
    merged,
    refusal,
)
from mltrainer.records.common import FileRow
from mltrainer.records.event import Copy, Tell
from mltrainer.reproducibility import git
from mltrainer.workspace import Project, locked, locked_project, machine_faults, new_whole, read_if_whole, sync, write_json

TRIES = 5  # looks at a project whose files change while they are sent
AT_A_TIME = 8  # files on their way together: a small one waits for the network most of its time
SHOWN_AFTER_S, SHOWN_EVERY_S = 2.0, 0.2  # a rate of the first moments says nothing


@dataclass(frozen=True)
class Copied:
    """The end of a copy.

    Attributes:
        files: The number of files sent or fetched.
        size: Their bytes.
        same: Files that were the same on both sides.
        dropped: Files that the list names no more.
        kept: Files that are newer here, or were removed here, and stayed so.
    """

    files: int
    size: int
    same: int
    dropped: int = 0
    kept: int = 0


# --- to the store ---------------------------------------------------------------------------------


def push(project: Project, address: str, force: bool = False, tell: Tell | None = None) -> Copied:
    """Copy changes here to a store since both were the same: data, records, reports, runs and checkpoints.

    It may run beside a phase.

    Args:
        project: The project to copy from.
        address: The store's, as fsspec reads it.
        force: Whether a file that changed on both sides is taken from here.
        tell: The function that receives the progress; None shows it on standard error.

    Raises:
        InputError: A file changed on both sides, or changes all the time; the store cannot be reached, or is another project's.
        InUseError: Another push ended meanwhile.
    """
    store = ObjectStore(address)
    with locked(project.state_dir / STORE_LOCK, "the copy to a store", may_wait=lambda: True), shown(tell) as show:
        sweep(project.state_dir)
        store.sweep()
        for _ in range(TRIES):
            try:
                return _push(project, store, force, show)
            except ChangedError as error:
                changed = error
        message = f"{project.relative(Path(str(changed)))} changed each time while it was sent"
        raise InputError(message, where=store.address, hint="type the same command again when fewer files are being written")


def _push(project: Project, store: ObjectStore, force: bool, tell: Tell) -> Copied:
    manifest, text = _listed(project, store)
    there = manifest.files if manifest is not None else {}
    rows = data_rows(project)
    here = _look(project, rows or [])
    _refuse_names(project, here)
    known = _known(project, store)
    differing = merged(known, _digests(here), _digests(there))
    if differing.both and not force:
        raise _parted(store, manifest, differing.both)
    ours = [*differing.here, *differing.both]
    files = dict(there) | {path: here[path] for path in ours if path in here}
    for path in [path for path in ours if path not in here and not _stays(path, rows)]:
        del files[path]
    sizes = store.sizes()
    # Also for contents that are the same on both sides: a lost object is sent again.
    lacking = {row.sha256: path for path, row in here.items() if _is_same(files, path, row) and sizes.get(row.sha256) != row.size}
    copies = [_sender(store, project.root / path, here[path]) for path in lacking.values()]
    size = _copy(copies, sum(here[path].size for path in lacking.values()), "sent", tell)
    new = Manifest(project=load_project(project.file).name, commit=git.checked_out(project.root), files=files)
    if new != manifest:
        store.replace_list(new, text)
        store.remove(_digest_set(there) - _digest_set(files))
    _keep_known(project, store, known, _digests(here), _digests(files))
    dropped = sum(path not in files for path in there)
    return Copied(len(copies), size, len(here) - len(ours), dropped)


def _look(project: Project, rows: Iterable[FileRow]) -> dict[str, Listed]:
    """Return the files to copy, with their digests; a large file that did not change is not read again.

    Raises:
        ChangedError: One changed meanwhile.
    """
    digests, listed = FileDigests(project), {}
    for path in files_of(project, rows):
        file = project.root / path
        try:
            before, sha256, after = file.stat(), digests.of(file), file.stat()
        except FileNotFoundError as error:
            raise ChangedError(str(file)) from error
        if sha256 is None or before.st_size != after.st_size:
            raise ChangedError(str(file))
        listed[path] = Listed(sha256=sha256, size=after.st_size, modified=after.st_mtime_ns)
    digests.save()
    return listed


def _is_same(files: Mapping[str, Listed], path: str, row: Listed) -> bool:
    return path in files and files[path].sha256 == row.sha256


def _stays(path: str, rows: list[FileRow] | None) -> bool:
    """Return True for a file of the data that is missing here, and that the plan still needs, or may need."""
    return not is_evidence(path) and (rows is None or is_part_of(path, rows))


def _sender(store: ObjectStore, file: Path, row: Listed) -> Callable[[Moved], object]:
    return lambda moved: store.send(file, row, moved)


# --- from the store -------------------------------------------------------------------------------


def pull(project: Project, address: str, force: bool = False, tell: Tell | None = None) -> Copied:
    """Copy a store's changes since both were the same; all of them arrive and are compared before any file is replaced.

    What changed here alone stays, and nothing is removed.

    Args:
        project: The project to copy to.
        address: The store's, as fsspec reads it.
        force: Whether every file is taken from the store that is another one here, or was removed here.
        tell: The function that receives the progress; None shows it on standard error.

    Raises:
        InputError: A file changed on both sides, is damaged in the store, or would be elsewhere; nothing was replaced.
        InUseError: A phase runs here.
    """
    store = ObjectStore(address)
    with (
        locked_project(project),
        locked(project.state_dir / STORE_LOCK, "the copy to a store", may_wait=lambda: True),
        shown(tell) as show,
    ):
        return _pull(project, store, force, show)


def _pull(project: Project, store: ObjectStore, force: bool, tell: Tell) -> Copied:
    manifest, _ = _listed(project, store)
    if manifest is None:
        raise InputError("the store is empty", where=store.address, hint=f"mltrainer store push {store.address}")
    there = manifest.files
    _refuse_names(project, there)
    here = _present(project, there)
    known = _known(project, store)
    differing = merged(known, here, _digests(there))
    wanted = _wanted(project, store, manifest, differing, force)
    _refuse_links(project, wanted)
    _refuse_damaged(store, {path: there[path] for path in wanted})
    arriving = project.state_dir / ARRIVING
    with machine_faults(str(arriving)):
        arriving.mkdir(parents=True, exist_ok=True)
    one_each = {there[path].sha256: path for path in wanted}
    copies = [_fetcher(store, there[path], path, arriving) for path in one_each.values()]
    size = _copy(copies, sum(there[path].size for path in one_each.values()), "fetched", tell)
    _place_all(project, arriving, {path: there[path] for path in sorted(wanted, key=_is_copied_last)})
    shutil.rmtree(arriving)
    now = here | {path: there[path].sha256 for path in wanted}
    _keep_known(project, store, known, now, _digests(there))
    return Copied(len(wanted), size, len(there) - len(wanted) - len(differing.here), kept=len(set(differing.here) - set(wanted)))


def _wanted(project: Project, store: ObjectStore, manifest: Manifest, differing: Merged, force: bool) -> list[str]:
    """Return the paths to take from the store.

    Raises:
        InputError: Some changed on both sides, and `force` does not decide.
    """
    if force:
        return [*differing.here, *differing.there, *differing.both]
    is_its_commit = manifest.commit is not None and manifest.commit == git.checked_out(project.root)
    # Files of a checkout of the very commit were not changed by a person, git keeps them, and all there came of it.
    committed = _as_committed(project, [*differing.here, *differing.both]) & set(manifest.files) if is_its_commit else set()
    if parted := [path for path in differing.both if path not in committed]:
        raise _parted(store, manifest, parted)
    return [*differing.there, *differing.both, *(path for path in differing.here if path in committed)]


def _present(project: Project, paths: Iterable[str]) -> dict[str, str]:
    digests = FileDigests(project)
    digests_here = {path: sha256 for path in paths if (sha256 := digests.of(project.root / path)) is not None}
    digests.save()
    return digests_here


def _is_copied_last(path: str) -> bool:
    """Return True for records and reports, which refer to runs and checkpoints."""
    return path.startswith("phases/")


def _refuse_damaged(store: ObjectStore, rows: Mapping[str, Listed]) -> None:
    """Refuse a store that lacks a content, or has one of another size, before anything is fetched.

    Raises:
        InputError: The store is damaged; the message has the file's name.
    """
    sizes = store.sizes()
    for path, row in rows.items():
        if (size := sizes.get(row.sha256)) != row.size:
            raise store.damaged(path, row, "it is missing" if size is None else f"it has {size} bytes")


def _fetcher(store: ObjectStore, row: Listed, path: str, folder: Path) -> Callable[[Moved], object]:
    return lambda moved: store.fetch(row, path, folder, moved)


def _place_all(project: Project, arriving: Path, rows: Mapping[str, Listed]) -> None:
    """Place files in order; before them, whole, each checkpoint that is not here: with some of its files it would be damaged."""
    checkpoints: dict[Path, list[str]] = {}
    for path in rows:
        folder = (project.root / path).parent
        if step_of(folder) is not None and not folder.exists():
            checkpoints.setdefault(folder, []).append(path)
    for folder, paths in checkpoints.items():
        with new_whole(folder) as temporary:
            temporary.mkdir()
            for path in paths:
                _write(arriving / rows[path].sha256, file := temporary / Path(path).name, rows[path].modified)
                sync(file)
    done = {path for paths in checkpoints.values() for path in paths}
    for path in (path for path in rows if path not in done):
        _place(arriving / rows[path].sha256, project.root / path, rows[path].modified)


def _place(arrived: Path, target: Path, modified: int) -> None:
    with new_whole(target) as temporary:
        _write(arrived, temporary, modified)


def _write(arrived: Path, target: Path, modified: int) -> None:
    # A separate copy: several files may have the same content, and the target may be on another disk.
    shutil.copyfile(arrived, target)
    os.utime(target, ns=(modified, modified))


# --- both ways ------------------------------------------------------------------------------------


def _listed(project: Project, store: ObjectStore) -> tuple[Manifest | None, bytes]:
    """Return a store's list and its text.

    Raises:
        InputError: It is another project's.
    """
    manifest, text = store.listed()
    name = load_project(project.file).name
    if manifest is not None and manifest.project != name:
        message = f"it holds the project {manifest.project!r}, and this is {name!r}"
        raise InputError(message, where=store.address, hint="give each project a separate prefix")
    return manifest, text


def _refuse_names(project: Project, paths: Iterable[str]) -> None:
    """Refuse files that a list must not write.

    Raises:
        InputError: Such a file is listed; the message has the path.
    """
    in_git, named = git.tracked(project.root), set(paths)
    declared = is_declared(project, data_rows(project) or [])
    for path in sorted(named):
        is_below_a_file = any(str(parent) in named for parent in PurePosixPath(path).parents)
        reason = "a file of the list is in place of its folder" if is_below_a_file else refusal(path, in_git, declared)
        if reason is not None:
            raise InputError(reason, where=path, hint="it is neither sent nor fetched: move it, or correct data.source")


def _refuse_links(project: Project, paths: Iterable[str]) -> None:
    """Refuse to write over a link, which may lead anywhere, and into a file's place.

    Raises:
        InputError: A link or a file is in the way; the message has the path.
    """
    for path in paths:
        if (link := link_on_the_way(project, path)) is not None:
            raise InputError(f"{link} is in its way: a link, or no folder", where=path, hint=f"remove {link}")


def _parted(store: ObjectStore, manifest: Manifest | None, paths: list[str]) -> InputError:
    more = f", and {len(paths) - 1} more" if len(paths) > 1 else ""
    commits = f" (sent at commit {(manifest.commit or 'none')[:12]})" if manifest is not None else ""
    hint = f"`mltrainer store pull {store.address} --force` takes the store's, `store push ... --force` this folder's"
    return InputError(f"changed here, and otherwise in the store{commits}{more}", where=paths[0], hint=hint)


def _as_committed(project: Project, paths: list[str]) -> set[str]:
    """Return the files that are equal to the checked-out commit's."""
    try:
        blobs = git.blobs(git.locate(project.root), project.root, [path for path in paths if (project.root / path).is_file()])
    except git.GitError:
        return set()
    return {path for path, (held, now) in blobs.items() if held == now}


def _digests(rows: Mapping[str, Listed]) -> dict[str, str]:
    return {path: row.sha256 for path, row in rows.items()}


def _digest_set(rows: Mapping[str, Listed]) -> set[str]:
    return set(_digests(rows).values())


def _known(project: Project, store: ObjectStore) -> dict[str, str]:
    """Return the digests that a store and this folder last had in common, by path."""
    kept = read_if_whole(project.state_dir / KNOWN_FILE)
    files = kept.get("files") if kept.get("store") == store.address else None
    return {str(path): str(sha256) for path, sha256 in files.items()} if isinstance(files, dict) else {}


def _keep_known(
    project: Project, store: ObjectStore, known: Mapping[str, str], here: Mapping[str, str], there: Mapping[str, str]
) -> None:
    """Keep the digests that both sides have in common now; where they differ, their last common ones."""
    common = {path: sha256 for path, sha256 in here.items() if there.get(path) == sha256}
    before = {path: sha256 for path, sha256 in known.items() if path in there or (project.root / path).exists()}
    write_json(project.state_dir / KNOWN_FILE, {"store": store.address, "files": before | common})


def _copy(copies: list[Callable[[Moved], object]], size: int, what: Literal["sent", "fetched"], tell: Tell) -> int:
    """Make copies, several at a time, and report progress; return the bytes."""
    copied, began, stopped = [0], time.monotonic(), threading.Event()

    def moved(count: int) -> None:
        if stopped.is_set():
            raise CancelledError
        with lock:
            copied[0] += count

    lock = threading.Lock()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        left = {pool.submit(copy, moved) for copy in copies}
        try:
            while left:
                ended, left = wait(left, SHOWN_EVERY_S, FIRST_EXCEPTION)
                for one in ended:
                    one.result()
                if (taken := time.monotonic() - began) > SHOWN_AFTER_S:
                    tell(Copy(what=what, done=copied[0], size=size, bytes_per_s=copied[0] / taken).model_dump())
        finally:
            stopped.set()  # after a fault or a Ctrl-C the others end with the piece that they are at
            pool.shutdown(cancel_futures=True)
    return size
