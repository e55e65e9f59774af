"""What a verdict is about: the files that a program read, by digest, and what it ran on."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mltrainer.workspace import digest, sha256_file
from mltrainer.wrap.lines import rows_of

CODE = (".py", ".pyi", ".ipynb")
MOST_BYTES = 4 << 30  # a larger file is named with its size alone


class Read(NamedTuple):
    """A file that was read.

    Attributes:
        path: Relative to the program's folder where it lies in it.
        bytes: Its size.
        sha256: Its digest; None where it is too large, or gone.
    """

    path: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True)
class Judged:
    """What a verdict is about.

    Attributes:
        code: The program's own sources.
        data: What else it read.
        about: Versions of Python and torch, and how many threads an operation takes.
        prefix: Where that Python and its packages are installed.
    """

    code: tuple[Read, ...]
    data: tuple[Read, ...]
    about: dict[str, Any]
    prefix: str = ""

    @property
    def code_sha256(self) -> str:
        """Digest of all sources with their paths."""
        return digest(self.code)

    @property
    def data_sha256(self) -> str:
        """Digest of all data with its paths."""
        return digest(self.data)


def judged(lines: Path, place: Path, folder: Path | None = None) -> Judged:
    """Return what a run read, in the state in which it found it.

    Args:
        lines: Where its observer's lines lie.
        place: The folder that it ran in.
        folder: The one that this is a copy of: what the program changed in the copy is there as it was.
    """
    rows = sorted((row for found in rows_of(lines, "files").values() for row in found), key=lambda row: int(row[0]))
    first = {row[2]: row[1] for row in reversed(rows) if row[1] in ("read", "written", "changed")}
    altered = {row[2]: row[1] for row in rows if row[1] in ("changed", "written", "appended")}
    paths = {_source(path): altered.get(path, "read") for path, way in first.items() if way != "written"}
    about = next((dict(row[2]) for row in rows if row[1] == "about"), {})
    found = list(_present(paths, place, folder or place))
    code = tuple(row for row in found if row.path.endswith(CODE))
    prefix = next((str(row[2]) for row in rows if row[1] == "prefix"), "")
    return Judged(code, tuple(row for row in found if row not in code), about, prefix)


def _source(path: str) -> str:
    """Return the source that a file of compiled code was made from; any other file is itself."""
    try:
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:
        return path


def _present(paths: Mapping[str, str], place: Path, folder: Path) -> Iterable[Read]:
    """Return the rows of files by their paths, each with what became of it: written anew elsewhere, what it held is not known."""
    root = place.resolve()
    for name in sorted(paths):
        path = Path(name)
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else name
        is_original_here = paths[name] != "read" and folder.resolve() != root and path.is_relative_to(root)
        kept = folder / shown if is_original_here else path
        if kept.is_file() and (is_original_here or paths[name] in ("read", "changed")):
            size = kept.stat().st_size
            yield Read(shown, size, sha256_file(kept) if size <= MOST_BYTES else None)
