"""The lines of observed processes, read by kind and by process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Key = tuple[str, int]  # a process's name, and its number among those of that name


def files_of(folder: Path, kind: str) -> dict[Key, Path]:
    """Return the files of a kind by process; files of one name in the order of their beginning."""
    files: dict[Key, Path] = {}
    names: dict[str, int] = {}
    # By the process's number at the name's end, which text would sort otherwise: 10 before 9.
    for path in sorted(folder.glob(f"{kind}-*.jsonl"), key=lambda p: int(p.stem.rpartition("-")[2])):
        name = path.stem.removeprefix(f"{kind}-").rpartition("-")[0]
        files[name, names.setdefault(name, 0)] = path
        names[name] += 1
    return files


def rows_of(folder: Path, kind: str) -> dict[Key, list[list[Any]]]:
    """Return the rows of a kind by process, in order: each begins with the time and the row's own kind."""
    return {key: list(_rows(path)) for key, path in files_of(folder, kind).items()}


def _rows(path: Path) -> Iterator[list[Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:  # half a line of a process that was ended
                return
