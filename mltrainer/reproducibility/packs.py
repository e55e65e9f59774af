"""Packs: the folders of many ended runs in one file, since a large study leaves a million small files behind.

A pack is a zip file beside the folders, `.mltrainer/runs/pack-0001.zip`, with a zip file for each run. A packed run is restored
where somebody asks for it by its id; what its files hold is proved by the seals that they had before.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mltrainer.errors import InputError, InUseError
from mltrainer.leftovers import RUN_LOCK, TEMPORARY, new_file, new_folder
from mltrainer.reproducibility.evidence import JOB_FILE, RESULT_FILE, set_aside
from mltrainer.workspace import from_json, locked, machine_faults, sync

MOST = 1_000  # runs in a pack: few files, each written in a few seconds
# At the end of a pack: where that is cut off, zipfile takes the end of the last run in it for the pack's.
_MARK = b"mltrainer runs 1"
_RUN = re.compile(r"([0-9a-f]{12})\.zip")
# What zipfile raises of bytes that are no zip file, were cut off, or were changed in an entry's name, size, method or data.
_FAULTS = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError, KeyError)


def packed(runs_dir: Path) -> dict[str, Path]:
    """Return the newest pack of each packed run.

    Raises:
        InputError: A pack cannot be read.
    """
    return {run: path for path in _packs(runs_dir) for run in _runs_of(path)}


def pack(runs_dir: Path, runs: Iterable[str]) -> Path:
    """Write the folders of runs into a new pack, and remove them once it is on the disk; return its path.

    A run that somebody went on with meanwhile keeps its folder, which comes before its copy in the pack.

    Raises:
        InputError: A file went away while it was packed.
        MachineError: The pack cannot be written; then no folder was removed.
    """
    results = {run: (runs_dir / run / RESULT_FILE).read_bytes() for run in runs}
    numbers = [int(path.stem.removeprefix("pack-")) for path in _packs(runs_dir)]
    target = runs_dir / f"pack-{max(numbers, default=0) + 1:04d}.zip"
    with machine_faults(str(target)), _nothing_missing():
        descriptor, path = new_file(runs_dir, ".zip")
        try:
            _write(path, runs_dir, results)
            sync(path)
            path.rename(target)
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)
        sync(runs_dir)
        for run, result in results.items():
            _remove(runs_dir / run, result)
    return target


def restore(runs_dir: Path, run: str, packs: Mapping[str, Path] | None = None) -> None:
    """Restore a packed run's folder, unless it is there already or in no pack.

    A folder that holds no job is set aside: somebody wrote there without knowing that the run was packed.

    Args:
        runs_dir: Folder of the runs.
        run: The run's id.
        packs: The result of `packed`, if known.

    Raises:
        InputError: The pack is damaged.
    """
    if (runs_dir / run / JOB_FILE).exists() or (path := (packed(runs_dir) if packs is None else packs).get(run)) is None:
        return
    with machine_faults(str(runs_dir / run)), new_folder(runs_dir) as folder, _outer(path) as outer, _inner(outer, run) as inner:
        for entry in inner.infolist():
            _extract(inner, entry, folder, path)
        if (runs_dir / run).exists() and not (runs_dir / run / JOB_FILE).exists():
            set_aside(runs_dir / run)
        with contextlib.suppress(OSError):  # another command restored it meanwhile
            folder.rename(runs_dir / run)
            sync(runs_dir)


def read_packed(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each run of a pack with the content of its JSON file of a name.

    Raises:
        InputError: The pack is damaged.
    """
    with _outer(path) as outer:
        for run in _names(outer):
            with _inner(outer, run) as inner:
                yield run, from_json(inner.read(name))


def _remove(folder: Path, result: bytes) -> None:
    """Remove a folder at once, unless it is in use or has changed since it was packed.

    By half, as a kill might leave it, it would be taken for the run.
    """
    with contextlib.suppress(InUseError, FileNotFoundError), locked(folder / RUN_LOCK, f"run {folder.name}"):
        if (folder / RESULT_FILE).read_bytes() == result:
            remove_folder(folder)


def remove(folder: Path) -> None:
    """Remove a run's folder at once.

    Raises:
        InUseError: The run trains.
        MachineError: The folder cannot be removed.
    """
    with machine_faults(str(folder)), locked(folder / RUN_LOCK, f"run {folder.name}"):
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder at once: after a kill it is whole, or gone but for a leftover that a later command removes."""
    away = folder.with_name(f"{TEMPORARY}{os.urandom(6).hex()}")
    folder.rename(away)
    sync(folder.parent)
    shutil.rmtree(away)


def is_plain(folder: Path) -> bool:
    """Return True if a folder and all below it are files and folders: a pack has no links, pipes or sockets."""
    return all(not path.is_symlink() and (path.is_dir() or path.is_file()) for path in below(folder))


def file_sizes(folder: Path) -> list[int]:
    """Return the bytes of each file and link below a folder.

    Raises:
        OSError: A file or folder cannot be read.
    """
    return [path.lstat().st_size for path in below(folder) if not path.is_dir()]


def below(folder: Path) -> Iterator[Path]:
    """Yield all files and folders below a folder.

    Raises:
        OSError: A file or folder cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        yield from (Path(parent, name) for name in sorted([*folders, *files]))


@contextlib.contextmanager
def _nothing_missing() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        what = f"a file went away while it was packed: {error.filename}"
        raise InputError(what, hint="type the same command again") from error


def _packs(runs_dir: Path) -> list[Path]:
    return sorted(runs_dir.glob("pack-[0-9][0-9][0-9][0-9]*.zip"), key=lambda path: (len(path.name), path.name))


def _runs_of(path: Path) -> list[str]:
    with _outer(path) as outer:
        return _names(outer)


def _names(outer: zipfile.ZipFile) -> list[str]:
    return [match[1] for name in outer.namelist() if (match := _RUN.fullmatch(name))]


def _write(path: Path, runs_dir: Path, runs: Iterable[str]) -> None:
    # The runs' files are compressed one by one and the runs stored, so that one file of one run is read without the others.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, strict_timestamps=False) as outer:
        outer.comment = _MARK
        for run in runs:
            with outer.open(f"{run}.zip", "w", force_zip64=True) as stream:
                with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as inner:
                    for file in below(runs_dir / run):
                        inner.write(file, file.relative_to(runs_dir / run).as_posix())


@contextlib.contextmanager
def _inner(outer: zipfile.ZipFile, run: str) -> Iterator[zipfile.ZipFile]:
    with outer.open(f"{run}.zip") as stream, zipfile.ZipFile(stream) as inner:
        yield inner


def _extract(inner: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, path: Path) -> None:
    place = PurePosixPath(entry.filename)
    # zipfile leaves such parts out of the name, and would put the file somewhere else below the folder.
    if place.is_absolute() or ".." in place.parts:
        raise InputError(
            f"a file of a packed run is outside its folder: {entry.filename!r}", where=str(path), hint="remove this pack"
        )
    target = Path(inner.extract(entry, folder))
    if target.is_file():
        sync(target)
    # Runs are listed by the age of their jobs.
    os.utime(target, (time.mktime((*entry.date_time, 0, 0, -1)),) * 2)


@contextlib.contextmanager
def _outer(path: Path) -> Iterator[zipfile.ZipFile]:
    """Yield an opened pack.

    Raises:
        InputError: The pack is damaged.
    """
    try:
        with zipfile.ZipFile(path) as outer:
            if outer.comment != _MARK:
                raise zipfile.BadZipFile("its end is missing")
            yield outer
    except _FAULTS as error:
        hint = "take it from a backup, or remove it: the runs in it can be trained again"
        raise InputError(f"this pack of runs is damaged: {error}", where=str(path), hint=hint) from error
