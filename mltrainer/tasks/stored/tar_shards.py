"""Samples in tar files, as WebDataset lays them out: files that follow one another and share the name before its first dot."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.tasks.stored.lru_cache import LruCache
from mltrainer.tasks.stored.manifest import READ, FileManifest, Slots, StoredFile, kept_content
from mltrainer.tasks.stored.readable import Readable
from mltrainer.tasks.stored.records import Records
from mltrainer.workspace import STATE_DIR, seal, write_json

FORM = 1  # the version of a stored index; one of another version is made again
FOLDER = "tar_indexes"  # in the state folder
HELD_INDEXES = 64

Parts = dict[str, tuple[int, int]]  # of a sample, by ending: the first byte and the number of bytes
Index = list[tuple[str, Parts]]  # of a shard's samples, by key


def index_of(file: StoredFile) -> Index:
    """Return the samples of a tar file: their keys, and the place of each of their files.

    Raises:
        InputError: The file is no plain tar file, is cut off, or holds no sample.
    """
    name = file.manifest.location.name
    found: Index = []
    try:
        with tarfile.open(fileobj=Readable(file), mode="r:") as archive:
            for key, ending, member in _members(archive, name):
                if not found or found[-1][0] != key:
                    found.append((key, {}))
                if ending in found[-1][1]:
                    raise InputError(
                        f"two files {ending!r} of the sample {key!r}", where=name, hint="give each sample its own name"
                    )
                found[-1][1][ending] = (member.offset_data, member.size)
            _require_end(file, archive.offset)
    except tarfile.TarError as error:
        raise InputError(
            f"not readable as a plain tar file: {error}", where=name, hint="unpack it, or bring the whole file"
        ) from error
    ends = max((first + size for _, parts in found for first, size in parts.values()), default=0)
    if not found or ends > file.manifest.size:
        what = "holds no file with an ending" if not found else f"is cut off: a sample ends at byte {ends}"
        raise InputError(what, where=name, hint="bring the whole file")
    return found


def _members(archive: tarfile.TarFile, name: str) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Yield key, ending and place of each file that has an ending.

    Raises:
        InputError: A file is a link, a device or sparse.
    """
    for member in archive:
        folder, _, base = member.name.rpartition("/")
        stem, _, ending = base.partition(".")
        if member.isdir() or not stem or not ending:
            continue
        if not member.isreg() or member.issparse():
            kind = "a sparse file" if member.isreg() else "a link or a device"
            what = f"{member.name!r} is {kind}; files with their content were expected"
            raise InputError(what, where=name, hint="pack it again: tar --dereference --hard-dereference -cf FILE ...")
        yield (f"{folder}/{stem}" if folder else stem), ending, member


def _require_end(file: StoredFile, at: int) -> None:
    """Refuse a tar file that does not end where its last member does: later content would be left out silently.

    Args:
        file: The tar file.
        at: The byte after the last member.

    Raises:
        InputError: The file is cut off, damaged, or several are joined in it.
    """
    name, rest = file.manifest.location.name, Readable(file)
    rest.seek(at)
    if len(end := rest.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
        raise InputError(f"is cut off: no end of the archive at byte {at}", where=name, hint="bring the whole file")
    if any(end):
        raise InputError(f"is damaged: no header of a file at byte {at}", where=name, hint="bring the whole file")
    while data := rest.read(READ):
        if any(data):
            what = f"holds more after its end at byte {at}, as tar files that were joined do"
            raise InputError(what, where=name, hint="keep each tar file separate, or pack it again")


def tar_slots(file: StoredFile) -> Slots:
    """Return a shard's samples as one slot."""
    return [(len(index_of(file)), file.manifest.size)]


class TarShards(Records):
    """Samples of tar files: dicts of bytes by ending, and the key as `__key__`.

    Args:
        files: The files' manifests.
        root: The project's folder, whose state folder keeps the index of each.
    """

    kind = "tar"

    def __init__(self, files: list[FileManifest], root: Path) -> None:
        super().__init__(files)
        self._folder = root / STATE_DIR / FOLDER
        self._files = [StoredFile(one) for one in files]
        self._held: LruCache[int, Index] = LruCache(HELD_INDEXES)

    def read(self, slot: int, row: int) -> Any:
        """Return a sample's files by ending."""
        key, parts = self._index(slot)[row]
        return {
            "__key__": key,
            **{ending: self._files[slot].read(*where) if where[1] else b"" for ending, where in parts.items()},
        }

    def place(self, slot: int, row: int) -> str:
        """Return the shard and the sample's key."""
        return f"{self.files[slot].location.name}, {self._index(slot)[row][0]}"

    def _index(self, slot: int) -> Index:
        """Return a shard's index from memory or from the state folder, else a new one, which is stored."""
        return self._held.get(slot, lambda: self._kept(slot) or self._made(slot))

    def _path(self, slot: int) -> Path:
        # By content: another file never finds it.
        return self._folder / f"{self.files[slot].sha256[:32]}.json"

    def _kept(self, slot: int) -> Index | None:
        kept = kept_content(self._path(slot), FORM)
        if kept.get("sha256") != self.files[slot].sha256:
            return None
        return [(key, {ending: (first, size) for ending, first, size in parts}) for key, parts in kept["samples"]]

    def _made(self, slot: int) -> Index:
        found = index_of(self._files[slot])
        rows = [[key, [[ending, *where] for ending, where in parts.items()]] for key, parts in found]
        write_json(self._path(slot), seal({"form": FORM, "sha256": self.files[slot].sha256, "samples": rows}))
        return found
