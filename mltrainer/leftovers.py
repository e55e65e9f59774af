"""Unfinished files and folders, and scratch folders: each is held by a lock that the kernel frees however its process ends.

A file or folder that no process holds is a leftover of a killed process, and the next command removes it. On a file system
without locks, leftovers cannot be recognized, and nothing is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mltrainer.locks import take

TEMPORARY = ".tmp-"  # begins the name of an unfinished file or folder
SCRATCH = "mltrainer-"  # begins the name of a folder in the system's one for temporary files
OWNER_FILE = ".mltrainer-owner"  # in such a folder: held by the process that made it
RUN_LOCK, RUN_SCRATCH = "lock", "scratch"  # in a run's folder: held while it trains; where its program runs
_FINISHED = ("step-", RUN_SCRATCH)  # begin the names of folders without unfinished files of their own


# --- making ---------------------------------------------------------------------------------------


def new_file(folder: Path, ending: str = "") -> tuple[int, Path]:
    """Create a file that is held until its descriptor is closed, and return descriptor and path; its mode is the umask's.

    Args:
        folder: The folder of the file.
        ending: The ending of its name.
    """
    while True:
        path = folder / f"{TEMPORARY}{os.urandom(6).hex()}{ending}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        # Between its creation and its lock nothing holds it, and a sweep may have removed it as a leftover.
        if _hold(descriptor, path):
            return descriptor, path
        os.close(descriptor)


@contextlib.contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder that is held, with the umask's mode; unless it was renamed, it is removed at the end."""
    descriptor, path = _held_folder(parent)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _held_folder(parent: Path) -> tuple[int, Path]:
    while True:
        path = parent / f"{TEMPORARY}{os.urandom(6).hex()}"
        path.mkdir()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # swept before it was opened, as a file may be before it is held
            continue
        except OSError:
            path.rmdir()
            raise
        if _hold(descriptor, path):
            return descriptor, path
        os.close(descriptor)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder with a final name for the length of a block, also while it has another name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _hold(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def scratch(kind: str = "") -> Iterator[Path]:
    """Yield a private folder among the system's temporary ones, and remove it at the end; leftovers are removed first.

    Args:
        kind: The purpose, a part of the folder's name.
    """
    sweep_scratch()
    with tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{kind}", ignore_cleanup_errors=True) as name:
        descriptor, owner = new_file(Path(name))
        try:
            owner.rename(Path(name, OWNER_FILE))  # held before it has the name by which a sweep finds the folder
            yield Path(name)
        finally:
            os.close(descriptor)


def _hold(descriptor: int, path: Path) -> bool:
    """Lock a new file or folder, and return whether it still exists: a sweep may have been quicker."""
    with contextlib.suppress(OSError):  # a file system without locks
        take(descriptor, waits=True)
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


# --- sweeping -------------------------------------------------------------------------------------


def sweep(folder: Path) -> list[Path]:
    """Remove the leftovers of killed processes directly in a folder, and return their paths."""
    try:
        names = [entry.name for entry in os.scandir(folder) if entry.name.startswith(TEMPORARY)]
    except OSError:
        return []
    return [folder / name for name in names if _removed(folder / name, folder / name)]


def sweep_below(folder: Path) -> list[Path]:
    """Remove the leftovers of killed processes in and below a folder, programs' working copies too, and return their paths."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        here = Path(place)
        found += sweep(here)
        if RUN_SCRATCH in folders and RUN_LOCK in files and _removed(here / RUN_SCRATCH, here / RUN_LOCK):
            found.append(here / RUN_SCRATCH)
        folders[:] = [name for name in folders if not name.startswith((TEMPORARY, *_FINISHED))]
    return found


def sweep_scratch() -> list[Path]:
    """Remove mltrainer's scratch folders whose process has ended, and return their paths."""
    try:
        entries = [entry for entry in os.scandir(tempfile.gettempdir()) if entry.name.startswith(SCRATCH)]
    except OSError:
        return []
    return [Path(entry) for entry in entries if _is_ours(entry) and _removed(Path(entry), Path(entry, OWNER_FILE))]


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Return True if a folder was made by `scratch`, for this user."""
    with contextlib.suppress(OSError):
        is_folder = entry.is_dir(follow_symlinks=False)
        return is_folder and entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_plain(Path(entry, OWNER_FILE))
    return False


def _is_plain(path: Path) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


def _removed(path: Path, lock: Path) -> bool:
    """Remove a file or folder whose lock no process holds, and return whether it was removed."""
    try:
        # A file is opened for writing: over NFS an exclusive lock needs that.
        descriptor = os.open(lock, (os.O_RDONLY if lock.is_dir() else os.O_RDWR) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        take(descriptor)
        shutil.rmtree(path) if path.is_dir() else path.unlink()  # only now: the lock shows that no live process owns it
    except OSError:  # held, or not ours to remove
        return False
    finally:
        os.close(descriptor)
    return True
