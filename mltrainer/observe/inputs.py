"""The files that an observed program read, in the state in which it read them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mltrainer.redaction import is_private
from mltrainer.workspace import sha256_file

WAYS = ("read", "written", "changed", "appended")
MOST_BYTES = 4 << 30  # a larger file is named with its size alone


class Read(NamedTuple):
    """A file that was read.

    Attributes:
        path: The file's path, relative to the program's folder if it is in it.
        bytes: Its size.
        sha256: Its digest; None where it is too large, or gone.
    """

    path: str
    bytes: int
    sha256: str | None


def read_in(opened: Sequence[tuple[str, str]], place: Path, folder: Path | None = None) -> list[Read]:
    """Return the files that were read, sorted by path; private files, such as `.env`, are left out.

    Args:
        opened: Each file's way of opening, one of `WAYS`, and its path, in the order of time.
        place: The folder that the program ran in.
        folder: The one that this is a copy of: what the program changed in the copy is there as it was.
    """
    # The first opening decides: a file that a program wrote before it read it is no input.
    first = {path: way for way, path in reversed(opened) if way in ("read", "written", "changed")}
    altered = {path: way for way, path in opened if way in ("changed", "written", "appended")}
    read = [path for path, way in first.items() if way != "written" and not is_private(path)]
    paths = {source_of(path): altered.get(path, "read") for path in read}
    return list(_present(paths, place, folder or place))


def source_of(path: str) -> str:
    """Return the source that a file of compiled code was made from; any other file is itself."""
    try:
        return importlib.util.source_from_cache(path) if path.endswith(".pyc") else path
    except ValueError:
        return path


def _present(paths: Mapping[str, str], place: Path, folder: Path) -> Iterable[Read]:
    """Return the rows of files by their paths, in their present state; the former content of a rewritten file is unknown."""
    root = place.resolve()
    for name in sorted(paths):
        path = Path(name)
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else name
        is_original_here = paths[name] != "read" and folder.resolve() != root and path.is_relative_to(root)
        kept = folder / shown if is_original_here else path
        if kept.is_file() and (is_original_here or paths[name] in ("read", "changed")):
            size = kept.stat().st_size
            yield Read(shown, size, sha256_file(kept) if size <= MOST_BYTES else None)
