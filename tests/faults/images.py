"""What a disk may hold after a power cut: the calls of a program, replayed up to a moment, without what was not synced.

The model is that of a journalling file system without the kindness of any one: within a folder, names change in the order of
the calls, up to any moment after its last sync; between folders there is no order; of a file's writes since its last sync any
are there, whole or half, or none. Its sync keeps its creation, too, as ext4, XFS and btrfs do, but no renaming.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from tests.faults.injector import Call


@dataclass
class _File:
    """A file: its bytes that are synced, and the changes since; a folder has `names` of its own."""

    synced: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)  # offset and data; the size and None of a truncation

    def sync(self) -> None:
        self.synced, self.changes = _changed(self.synced, self.changes), []

    def left(self, luck: random.Random) -> bytes:
        """Return what a cut may leave of it."""
        share = luck.choice((0.0, 0.5, 1.0))
        kept = [change for change in self.changes if change[1] is None or luck.random() < share]
        if kept and kept[-1][1] and luck.random() < 0.5:
            at, data = kept[-1]
            kept[-1] = (at, data[: len(data) // 2])
        return _changed(self.synced, kept)


def _changed(data: bytes, changes: Iterable[tuple[int, bytes | None]]) -> bytes:
    found = bytearray(data)
    for at, part in changes:
        found.extend(bytes(max(0, at - len(found))))
        if part is None:
            del found[at:]
        else:
            found[at : at + len(part)] = part
    return bytes(found)


@dataclass
class _Folder:
    """A folder: its names that are synced, and the changes since, each a name and what it stands for, or None."""

    synced: dict[str, _File | _Folder] = field(default_factory=dict)
    changes: list[list[tuple[str, _File | _Folder | None]]] = field(default_factory=list)

    @property
    def now(self) -> dict[str, _File | _Folder]:
        return self.left(len(self.changes))

    def left(self, number: int) -> dict[str, _File | _Folder]:
        """Return the names after some of the changes."""
        found = dict(self.synced)
        for change in self.changes[:number]:
            for name, node in change:
                found.pop(name, None)
                if node is not None:
                    found[name] = node
        return found

    def sync(self) -> None:
        self.synced, self.changes = self.now, []

    def keep(self, name: str) -> None:
        """Keep the creation of a name, whatever becomes of the other changes."""
        node = self.now[name]
        for change in self.changes:
            if change == [(name, node)]:
                self.synced[name] = node
                self.changes.remove(change)
                return


class Disk:
    """A folder of a disk, as the calls on it change it.

    Args:
        root: The folder, as it is on the disk before the calls: all of that is synced.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._top = root, _read(root)

    def apply(self, call: Call) -> None:
        """Change it as a call does that succeeds."""
        path = self._place(call.path)
        if path is None:
            return
        folder, name = self._parent(path), path.name
        if folder is None or not path.parts:
            if call.op == "fsync" and not path.parts:
                self._top.sync()
            return
        node = folder.now.get(name)
        if call.op == "create":
            folder.changes.append([(name, _File())])
        elif call.op == "mkdir":
            folder.changes.append([(name, _Folder())])
        elif call.op in ("unlink", "rmdir"):
            folder.changes.append([(name, None)])
        elif call.op in ("rename", "link"):
            self._rename(call, folder, name)
        elif call.op == "fsync" and node is not None:
            node.sync()
            folder.keep(name)
        elif isinstance(node, _File):
            self._write(call, node)

    def _write(self, call: Call, node: _File) -> None:
        if call.op == "empty":
            node.changes.append((0, None))
        elif call.op == "truncate":
            node.changes.append((call.at, None))
        elif call.op == "write":
            node.changes.append((call.at, call.data))

    def _rename(self, call: Call, folder: _Folder, name: str) -> None:
        target, node = self._place(call.to), folder.now.get(name)
        there = self._parent(target) if target is not None else None
        if target is None or there is None or node is None:
            return
        gone = [(name, None)] if call.op == "rename" else []
        if there is folder:
            folder.changes.append([*gone, (target.name, node)])
        else:
            there.changes.append([(target.name, node)])
            folder.changes.append([*gone])

    def _place(self, path: str) -> PurePath | None:
        whole = PurePath(path.removesuffix(" (deleted)"))
        return whole.relative_to(self._root) if whole.is_relative_to(self._root) else None

    def _parent(self, path: PurePath) -> _Folder | None:
        node: _File | _Folder | None = self._top
        for part in path.parts[:-1]:
            node = node.now.get(part) if isinstance(node, _Folder) else None
        return node if isinstance(node, _Folder) else None

    def image(self, target: Path, luck: random.Random) -> None:
        """Write what a cut now may leave."""
        _write(self._top, target, luck)


def _read(folder: Path) -> _Folder:
    names = {path.name: _read(path) if path.is_dir() else _File(path.read_bytes()) for path in folder.iterdir()}
    return _Folder(names)


def _write(folder: _Folder, target: Path, luck: random.Random) -> None:
    target.mkdir(exist_ok=True)
    number = luck.choice((0, len(folder.changes), luck.randint(0, len(folder.changes))))
    for name, node in folder.left(number).items():
        if isinstance(node, _Folder):
            _write(node, target / name, luck)
        else:
            (target / name).write_bytes(node.left(luck))
