"""The readers of libraries that open files in C, C++ or Rust, where the interpreter's audit events show nothing.

Each is put behind a function that notes the path that it is given, and is called as before. Also loaded by its path into a
program: it imports the standard library alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

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
    """Note the calls of a module's readers.

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
