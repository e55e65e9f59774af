"""The files that mltrainer's own training opens: seen by the observer of programs, and recorded in the same rows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

from mltrainer import handbook
from mltrainer.observe import files
from mltrainer.observe.file_rows import gathered, rows_of_reads
from mltrainer.observe.imports import after_import
from mltrainer.observe.inputs import WAYS, read_in, source_of
from mltrainer.observe.logs import rows_of
from mltrainer.observe.process import Process, Settings
from mltrainer.observe.readers import READERS, watch
from mltrainer.records.common import FileRow
from mltrainer.workspace import STATE_DIR

OPENED = "opened"  # in a run's folder, until the run has ended: the lines of its processes
PLACES = "places.txt"  # beside them: the project's folder as each process began, for a project that is moved before it goes on
WRITTEN = (STATE_DIR, "phases", ".git")  # folders of a project that mltrainer and git write
# Files of compilers and of plotting libraries: their content follows from code and machine.
CACHES = ("torchinductor_", ".triton/", ".cache/torch/kernels/", ".cache/matplotlib/", ".cache/fontconfig/", ".nv/")


@cache
def _observer() -> tuple[Process, files.Files]:
    """Return this process's only observer, as an audit hook stays for good; it notes files between `restart` and `end`."""
    process = Process(Settings())
    observer = files.Files(Settings(), process)
    after_import(READERS, lambda module: watch(module, observer.note_read))
    return process, observer


class OpenedFiles:
    """The files that a training opens, from here on, in this process and in those that it forks.

    Args:
        folder: The run's: the notes of its earlier processes stay there.
        root: The project's.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._lines, self._root = folder / OPENED, root.resolve()
        self._lines.mkdir(parents=True, exist_ok=True)
        with open(self._lines / PLACES, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{self._root}\n")
        process, self._observer = _observer()
        process.folder = str(self._lines)
        self._observer.restart()

    def rows(self, known: Collection[str]) -> list[FileRow]:
        """Return path, digest and size of each file that was read so far, in order; many of one kind become a tree.

        Args:
            known: Files and folders, relative to the project, that are bound by other records: data and code.
        """
        apart = {os.path.realpath(self._root / path) for path in (*known, *handbook.overrides(self._root), "mltrainer.yaml")}
        apart |= {str(handbook.shipped_folder() / path) for path in handbook.page_paths()}  # which may be beside the package
        # By time over all processes: the first opening decides whether a file is an input, whoever made it.
        noted = sorted((row for rows in rows_of(self._lines, "files").values() for row in rows), key=lambda row: int(row[0]))
        named = [(row[1], self._here(row[2])) for row in noted if row[1] in WAYS]
        opened = [(way, path) for way, path in named if self._counts(source_of(path), apart)]
        rows = rows_of_reads(read_in(opened, self._root), self._root, sys.prefix)
        return gathered([rows[path] for path in sorted(rows)], self._root)

    def end(self) -> None:
        """Note nothing more."""
        self._observer.end()

    def remove_notes(self) -> None:
        """Remove the notes of a run that is over: only a resumed process needs them."""
        shutil.rmtree(self._lines, ignore_errors=True)

    def _here(self, path: str) -> str:
        """Return the present path of a file that was opened in the project's former folder."""
        places = (self._lines / PLACES).read_text("utf-8", "surrogateescape").splitlines()
        # A NUL byte is of a line that a power cut left empty.
        earlier = (place for place in places if place != str(self._root) and "\0" not in place)
        before = next((place for place in earlier if is_below(path, place)), None)
        return path if before is None else str(self._root / Path(path).relative_to(before))

    def _counts(self, path: str, apart: Collection[str]) -> bool:
        """Return True for an input that nothing else binds; files of the machine and of Python are left out later."""
        if path in apart or any(str(parent) in apart for parent in Path(path).parents) or is_below(path, sys.prefix):
            return False
        if is_below(path, str(self._root)):
            return Path(path).relative_to(self._root).parts[0] not in WRITTEN
        return not (_of_the_user(path) or _is_bound_elsewhere(path) or any(part in path for part in CACHES))


def is_below(path: str, folder: str) -> bool:
    """Return True if a file is in a folder or below it."""
    return path.startswith(os.path.join(os.path.realpath(folder), ""))


def _is_bound_elsewhere(path: str) -> bool:
    """Return True for another project's state file, such as a teacher's, except its weights: record and weights bind it."""
    return f"/{STATE_DIR}/" in path and not path.endswith(".safetensors")


def _of_the_user(path: str) -> bool:
    """Return True for a hidden file of the user's home, such as a key; only its cache can hold inputs."""
    home = os.path.join(os.path.expanduser("~"), "")
    first = path.removeprefix(home).partition(os.sep)[0] if path.startswith(home) else ""
    return first.startswith(".") and first != ".cache"
