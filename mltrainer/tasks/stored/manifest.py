"""The manifest of files that stay where they are: size and digests of each, made in one pass and checked at every reading.

A file's digest binds it in records. The digests of its pieces make a single read checkable without reading the rest: a piece that
a process reads for the first time is read whole and compared, and again once size, time or inode of the file changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.records.common import FileRow
from mltrainer.tasks.stored.location import Location
from mltrainer.workspace import STATE_DIR, digest, is_sealed, read_json, seal, write_json

FORM = 1  # the version of the stored manifest; one of another version is made again
PIECE = 1 << 18  # bytes: large pieces make the first reading of a record slow, small ones need more digests
READ = 16 * PIECE  # bytes at a time of a file that is read whole
DIGEST = 16  # bytes of a piece's digest
FOLDER = "manifests"  # in the state folder
BRING_BACK = "bring the file back as it was, or plan again with what it is now: mltrainer phase run planning"

Slots = list[tuple[int, int]]  # of each part that is read at once: its number of records, and their size in bytes


@dataclass(frozen=True)
class FileManifest:
    """A file as it was when its manifest was made.

    Attributes:
        location: The file's location.
        mark: The values that show a change without reading the file: size, times and inode, or its store's version.
        size: The file's size in bytes.
        sha256: Digest of its content.
        pieces: BLAKE2b digests of its pieces of 256 KiB, one after the other.
        slots: The parts that are read at once.
    """

    location: Location
    mark: list[Any]
    size: int
    sha256: str
    pieces: bytes
    slots: Slots

    @property
    def row(self) -> FileRow:
        """The file's row for records."""
        return FileRow(path=self.location.name, sha256=self.sha256, size=self.size)


def manifest_of(
    locations: Sequence[Location], root: Path, kind: str, slots_of: Callable[[StoredFile], Slots]
) -> list[FileManifest]:
    """Return the manifest of some files: the stored one where their marks are the same, else a new one, which is stored.

    Args:
        locations: The files' locations, in order.
        root: The project's folder, whose state folder keeps it.
        kind: The kind of the files, as slots differ by kind.
        slots_of: Returns the slots of a file.

    Raises:
        InputError: A file is not there, empty, or not of its format.
    """
    path = root / STATE_DIR / FOLDER / f"{digest([kind, [one.name for one in locations]])[:16]}.json"
    kept = {row.path: row for row in (_Row(**one) for one in kept_content(path, FORM).get("files", ()))}
    found = [_manifest(one, kept.get(one.name), slots_of) for one in locations]
    rows = [_Row.of(one) for one in found]
    if rows != list(kept.values()):
        write_json(path, seal({"form": FORM, "files": [vars(row) for row in rows]}))
    return found


@dataclass(frozen=True)
class _Row:
    """A file's manifest in its stored form."""

    path: str
    mark: list[Any]
    size: int
    sha256: str
    pieces: str
    slots: list[list[int]]

    @classmethod
    def of(cls, made: FileManifest) -> _Row:
        """Return the row of a manifest."""
        slots = [list(slot) for slot in made.slots]
        return cls(made.location.name, made.mark, made.size, made.sha256, made.pieces.hex(), slots)

    def at(self, location: Location) -> FileManifest:
        """Return the manifest, of the file at its location."""
        slots = [(records, size) for records, size in self.slots]
        return FileManifest(location, self.mark, self.size, self.sha256, bytes.fromhex(self.pieces), slots)


def kept_content(path: Path, form: int) -> Mapping[str, Any]:
    """Return the content of a file of the state folder; empty where it is missing, damaged or of another form."""
    with contextlib.suppress(InputError, OSError):
        content: Mapping[str, Any] = read_json(path)
        if is_sealed(content) and content["form"] == form:
            return content
    return {}


def _manifest(location: Location, kept: _Row | None, slots_of: Callable[[StoredFile], Slots]) -> FileManifest:
    mark = location.mark()
    if kept is not None and kept.mark == mark:
        return kept.at(location)
    whole, pieces, size = hashlib.sha256(), [], 0
    with contextlib.closing(location.opened()) as file:
        while data := file.read(size, READ):
            whole.update(data)
            pieces += [piece_digest(data[low : low + PIECE]) for low in range(0, len(data), PIECE)]
            size += len(data)
    if not size:
        raise InputError("the file is empty", where=location.name, hint="bring the whole file, or leave it out of data.source")
    made = FileManifest(location, mark, size, whole.hexdigest(), b"".join(pieces), [])
    # Read through the manifest itself: a file that changes between the two readings is noticed.
    return replace(made, slots=slots_of(StoredFile(made)))


def piece_digest(data: bytes) -> bytes:
    """Return the digest of a piece."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


class StoredFile:
    """Reads a file by offset, and returns only bytes that agree with its manifest.

    It opens the file at the first read in each process.
    """

    def __init__(self, manifest: FileManifest) -> None:
        self.manifest = manifest
        self._begin()

    def _begin(self) -> None:
        self._process = 0
        self._file: Any = None
        self._mark: list[Any] = []
        self._known = bytearray(len(self.manifest.pieces) // DIGEST)

    def __reduce__(self) -> tuple[type[StoredFile], tuple[FileManifest]]:
        """Return the class and its argument for another process: without an open file."""
        return type(self), (self.manifest,)

    def read(self, offset: int, size: int) -> bytes:
        """Return some bytes.

        Raises:
            InputError: The bytes differ from the manifest, or the file ends before them.
        """
        self._open()
        first, last = offset // PIECE, (offset + max(size, 1) - 1) // PIECE
        if last >= len(self._known):
            what = f"ends at byte {self.manifest.size}, and byte {offset + size} is read"
            raise InputError(what, where=self._name, hint=BRING_BACK)
        if self._file.can_change_unseen:
            return self._checked(first, last)[offset - first * PIECE :][:size]
        if not all(self._known[first : last + 1]):
            self._checked(first, last)
            self._known[first : last + 1] = bytes([1]) * (last + 1 - first)
        return bytes(self._file.read(offset, size))

    def _checked(self, first: int, last: int) -> bytes:
        """Return some pieces, read at once, after comparing each."""
        data: bytes = self._file.read(first * PIECE, (last + 1 - first) * PIECE)
        for piece in range(first, last + 1):
            found = piece_digest(data[(piece - first) * PIECE :][:PIECE])
            if found != self.manifest.pieces[piece * DIGEST : (piece + 1) * DIGEST]:
                low = piece * PIECE
                what = f"{self._name} changed: bytes {low} to {low + PIECE - 1} are not those of its manifest"
                raise InputError(what, where=self._name, hint=BRING_BACK)
        return data

    def _open(self) -> None:
        """Open the file where this process has not, or where it was replaced or written to: then nothing of it is known."""
        mark = self.manifest.location.mark()
        if self._process == os.getpid() and mark == self._mark:
            return
        self._begin()
        self._file, self._mark, self._process = self.manifest.location.opened(), mark, os.getpid()

    @property
    def _name(self) -> str:
        return self.manifest.location.name
