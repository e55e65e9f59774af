"""The files that mltrainer's own training opens: seen by the observer of programs, and recorded in the same rows."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mltrainer import handbook
from mltrainer.observe import files
from mltrainer.observe.file_rows import gathered, rows_of_reads
from mltrainer.observe.inputs import WAYS, read_in, source_of
from mltrainer.observe.logs import rows_of
from mltrainer.observe.process import Process, Settings
from mltrainer.records.common import FileRow
from mltrainer.workspace import STATE_DIR

Note = Callable[[str], None]

# By module: functions, and classes written in Python, whose first argument, or the one of such a name, is a path.
READERS: dict[str, tuple[str, ...]] = {
    "safetensors": ("safe_open",),
    "safetensors.torch": ("safe_open",),
    "safetensors.numpy": ("safe_open",),
    "torch": ("from_file",),
    "torch.jit": ("load",),
    "torchvision.io": ("read_image", "read_file", "read_video", "decode_image"),
    "torchaudio": ("load", "info"),
    "soundfile": ("read", "info", "SoundFile"),
    "cv2": ("imread", "imreadmulti"),
    "h5py": ("File",),
    "polars": (
        *("read_csv", "scan_csv", "read_parquet", "scan_parquet", "read_ipc", "scan_ipc", "read_json", "read_ndjson"),
        *("scan_ndjson", "read_avro"),
    ),
    "pyarrow": ("memory_map",),
    "pyarrow.csv": ("read_csv", "open_csv"),
    "pyarrow.json": ("read_json",),
    "pyarrow.feather": ("read_table", "read_feather"),
    "pyarrow.parquet": ("read_table", "ParquetFile"),
    "pandas": ("read_parquet", "read_feather", "read_hdf", "read_orc"),
    "onnxruntime": ("InferenceSession",),
}
NAMED = ("filename", "file", "path", "source", "uri", "filepath", "path_or_model_path", "path_or_bytes", "path_or_buf", "f")
SEEN = "_mltrainer_notes_what_it_reads"


def watch(module: ModuleType, note: Note) -> None:
    """Have a module's readers noted.

    Args:
        module: One of `READERS`, imported.
        note: Is given each path.
    """
    for name in READERS[module.__name__]:
        reader = getattr(module, name, None)
        # A module may have it from another one that is watched: behind two functions each file would be noted twice.
        if reader is None or getattr(reader, SEEN, False):
            continue
        if isinstance(reader, type) and "__init__" in vars(reader) and hasattr(reader, "__dict__") and _is_of_python(reader):
            reader.__init__ = _noting(reader.__init__, note, 1)  # type: ignore[misc]  # it stays the class that others derive from
            setattr(reader, SEEN, True)
        else:
            setattr(module, name, _noting(reader, note, 0))


def _is_of_python(kind: type) -> bool:
    return bool(kind.__flags__ & 1 << 9)  # Py_TPFLAGS_HEAPTYPE: a class that a Python statement made


def _noting(reader: Any, note: Note, place: int) -> Any:
    @functools.wraps(reader, updated=())
    def read(*arguments: Any, **named: Any) -> Any:
        given = arguments[place] if len(arguments) > place else next((named[name] for name in NAMED if name in named), None)
        for path in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(path, (str, os.PathLike)):
                note(os.fsdecode(path))
        return reader(*arguments, **named)

    setattr(read, SEEN, True)
    return read


Then = Callable[[ModuleType], None]


def after_import(names: Iterable[str], then: Then) -> None:
    """Call a function with each module of some names: now where it has been imported, else after that.

    Args:
        names: The modules.
        then: Is given the module.
    """
    waiting = []
    for name in names:
        module = sys.modules.get(name)
        # In the table, but still being imported: of a module in a circle of imports only the beginning is there.
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            waiting.append(name)
        else:
            then(module)
    if waiting:
        sys.meta_path.insert(0, _AfterImport(set(waiting), then))


class _AfterImport:
    """Finds modules as the other finders do, and calls back once one has been imported whole: many look for it before that."""

    def __init__(self, names: set[str], then: Then) -> None:
        self._names, self._then = names, then

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name not in self._names:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]  # another one that waits for the same module may be among them
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._imported)  # type: ignore[assignment]  # it has what the import system calls
        return spec

    def _imported(self, module: ModuleType) -> None:
        self._names.discard(module.__name__)
        self._then(module)


class _Loader:
    def __init__(self, real: Any, then: Then) -> None:
        self._real, self._then = real, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: Any) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        # Before the module runs: its own code may ask its loader for files that lie beside it.
        module.__loader__ = module.__spec__.loader = self._real
        self._real.exec_module(module)
        self._then(module)


OPENED = "opened"  # in a run's folder, until the run has ended: the lines of its processes
PLACES = "places.txt"  # beside them: where the project lay as each process began, for one that is moved before it goes on
WRITTEN = (STATE_DIR, "phases", ".git")  # folders of a project that mltrainer and git write
# Of compilers and of what draws figures: what they hold follows from code and machine.
CACHES = ("torchinductor_", ".triton/", ".cache/torch/kernels/", ".cache/matplotlib/", ".cache/fontconfig/", ".nv/")


@cache
def _observer() -> tuple[Process, files.Files]:
    """Return this process's only observer, as an audit hook stays for good; it notes files between `begin_anew` and `end`."""
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
        self._observer.begin_anew()

    def rows(self, known: Collection[str]) -> list[FileRow]:
        """Return path, digest and size of each file that was read so far, in order; many of one kind stand as a tree.

        Args:
            known: Files and folders, relative to the project, that are bound by other records: data and code.
        """
        apart = {os.path.realpath(self._root / path) for path in (*known, *handbook.overrides(self._root), "mltrainer.yaml")}
        apart |= {str(handbook.shipped_folder() / path) for path in handbook.page_paths()}  # which may lie beside the package
        # By time over all processes: the first opening decides whether a file is an input, whoever made it.
        noted = sorted((row for found in rows_of(self._lines, "files").values() for row in found), key=lambda row: int(row[0]))
        named = [(row[1], self._here(row[2])) for row in noted if row[1] in WAYS]
        opened = [(way, path) for way, path in named if self._counts(source_of(path), apart)]
        rows = rows_of_reads(read_in(opened, self._root), self._root, sys.prefix)
        return gathered([rows[path] for path in sorted(rows)], self._root)

    def end(self, *, is_over: bool) -> None:
        """Note nothing more; where the run is over, remove the notes, which only a process that goes on with it needs."""
        self._observer.end()
        if is_over:
            shutil.rmtree(self._lines, ignore_errors=True)

    def _here(self, path: str) -> str:
        """Return the present path of a file that was opened where the project lay before."""
        places = (self._lines / PLACES).read_text("utf-8", "surrogateescape").splitlines()
        before = next((place for place in places if place != str(self._root) and is_below(path, place)), None)
        return path if before is None else str(self._root / Path(path).relative_to(before))

    def _counts(self, path: str, apart: Collection[str]) -> bool:
        """Return True where a file is an input that nothing else binds; files of the machine and of Python are left out later."""
        if path in apart or any(str(parent) in apart for parent in Path(path).parents) or is_below(path, sys.prefix):
            return False
        if is_below(path, str(self._root)):
            return Path(path).relative_to(self._root).parts[0] not in WRITTEN
        return not (_of_the_user(path) or _is_told_elsewhere(path) or any(part in path for part in CACHES))


def is_below(path: str, folder: str) -> bool:
    """Return True where a file lies in a folder or below it."""
    return path.startswith(os.path.join(os.path.realpath(folder), ""))


def _is_told_elsewhere(path: str) -> bool:
    """Return True for another project's state file, such as a teacher's, but for its weights: record and weights bind it."""
    return f"/{STATE_DIR}/" in path and not path.endswith(".safetensors")


def _of_the_user(path: str) -> bool:
    """Return True where a file is a hidden one of the user's home, such as a key; only its cache can hold inputs."""
    home = os.path.join(os.path.expanduser("~"), "")
    first = path.removeprefix(home).partition(os.sep)[0] if path.startswith(home) else ""
    return first.startswith(".") and first != ".cache"
