"""A program's output files, compared between two runs if no step of it is seen: by digest, JSON by its values."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer.records.common import Divergence
from mltrainer.workspace import digest

LINKED = (".git", "node_modules")
LEFT_OUT = (".mltrainer", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
MOST_BYTES = 1 << 20  # of a file of JSON that is looked into
MOST_VALUES = 200  # of a file of JSON that are compared one by one; of more, their digest is
LONGEST = 60  # characters of a value that is shown
ADDRESSES = frozenset(("shared_object_id",))  # Python's numbers of objects, which Keras writes beside their settings
UNDATED = 1980  # the year of a member without one: the first that an archive can hold
DIGITS = 12  # of a file's digest that are shown
TIMES = frozenset(  # words of a name that says how long something took, which no two runs agree on
    ("runtime", "time", "seconds", "second", "sec", "ms", "duration", "elapsed", "timestamp", "date", "throughput", "speed")
)
Stamps = Mapping[str, tuple[int, int]]  # of each file by its path in the folder: size, and when it last changed


def is_time(name: str) -> bool:
    """Return True if a name is that of a duration or a moment."""
    return not TIMES.isdisjoint(name.lower().split("_"))


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the state of each file of a folder, except environments, repositories, caches, and links to elsewhere."""
    states: dict[str, tuple[int, int]] = {}
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = [n for n in folders if n not in (*LINKED, *LEFT_OUT) and not (here / n / "pyvenv.cfg").exists()]
        for name in files:
            path = here / name
            if path.is_file() and not path.is_symlink():
                state = path.stat()
                states[str(path.relative_to(folder))] = (state.st_size, state.st_ctime_ns)
    return states


def written(folder: Path, before: Stamps) -> list[str]:
    """Return the files of a folder that were written since, by path."""
    return sorted(name for name, state in stamps(folder).items() if before.get(name) != state)


def leftover_files(place: Path, names: Sequence[str], whole: Sequence[str] = ()) -> dict[str, str]:
    """Return the digests of the files that a program left, by path; of JSON the values without times, by path and key.

    Args:
        place: The folder that it ran in.
        names: The files' paths in it; those that are not there are left out.
        whole: Those of which every byte counts, JSON too.
    """
    digests: dict[str, str] = {}
    for name in names:
        path = place / name
        if path.is_file():
            digests |= {name: _of_bytes(path)} if name in whole else _of_file(path, name)
    return digests


def _of_file(path: Path, name: str) -> dict[str, str]:
    rows = _json(path)
    if rows is None:
        return {name: _of_bytes(path)}
    values = dict(_values(rows[0] if len(rows) == 1 else rows))
    if len(values) > MOST_VALUES:
        return {name: digest(values)}
    return {f"{name}: {key}": value for key, value in values.items()}


def _json(path: Path) -> list[Any] | None:
    """Return the values of a file, one of each line if it holds several; None if it is no JSON, or too large."""
    if path.stat().st_size > MOST_BYTES:
        return None
    try:
        text = path.read_text("utf-8")
    except ValueError:
        return None
    for parts in ([text], text.splitlines()):
        try:
            rows = [json.loads(part) for part in parts if part.strip()]
        except (ValueError, RecursionError):
            continue
        return rows if rows and all(isinstance(row, dict | list) for row in rows) else None
    return None


def _values(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each plain value, times and addresses left out."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not is_time(str(name)) and name not in ADDRESSES:
                yield from _values(part, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for number, part in enumerate(value, 1):
            yield from _values(part, f"{key}[{number}]")
    else:
        text = json.dumps(value)
        yield key, text if len(text) <= LONGEST else digest(text)


def _of_bytes(path: Path) -> str:
    """Return a file's digest; of an archive with a creation time, such as a Keras model, the digest of its other content."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(zipfile.BadZipFile, OSError, RuntimeError, ValueError), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.date_time[0] > UNDATED for member in members):
            return digest({member.filename: _of_member(archive, member) for member in members})
    return sha256


def _of_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    if member.filename.endswith(".json") and member.file_size <= MOST_BYTES:
        return dict(_values(json.loads(archive.read(member))))
    with archive.open(member) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it reads as any binary file does


def first_unlike(one: Mapping[str, str], other: Mapping[str, str]) -> Divergence | None:
    """Return the first output of two runs that differs, None if all are the same.

    It is of no step: 0. Values of JSON come first, by file and key; what else differs is named behind it.
    """
    unlike = [name for name in sorted({*one, *other}, key=_order) if one.get(name) != other.get(name)]
    if not unlike:
        return None
    first, *others = unlike
    more = f", and {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}" if others else ""
    agree = [name for name in one if _is_value(name) and name not in unlike]
    but = ", though the values in JSON agree" if agree and not any(map(_is_value, unlike)) else ""
    return Divergence(step=0, what=f"{first}{more}{but}", expected=_shown(first, one), found=_shown(first, other))


def _order(name: str) -> tuple[bool, str]:
    return not _is_value(name), name


def _is_value(name: str) -> bool:
    return ": " in name


def _shown(name: str, left: Mapping[str, str]) -> str:
    """Return a value as it is, and a file's digest in short."""
    value = left.get(name)
    return "not there" if value is None else value if _is_value(name) else value[:DIGITS]
