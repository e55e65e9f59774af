"""What a disk may hold after a power cut: the calls of a program, replayed up to a moment, without what was not synced.

The model is that of a journalling file system whose data is not ordered with it, as ext4 with data=writeback: names change in
the order of the calls, up to any moment after the last that was synced; of a file's writes since its last sync any are there,
whole or half, or none. A file's sync keeps its creation, too, as ext4, XFS and btrfs do, but no later renaming.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from tests.faults.injector import Call

UNSEEN = re.compile(r"\.tmp\w{6}")  # the temporary name that safetensors gives a file


@dataclass(eq=False)
class _File:
    """A file: its bytes that are synced, and the changes since."""

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


@dataclass(eq=False)
class _Folder:
    """A folder: its names before all calls, and now."""

    before: dict[str, _File | _Folder] = field(default_factory=dict)
    now: dict[str, _File | _Folder] = field(default_factory=dict)


Change = tuple[_Folder, str, "_File | _Folder | None"]  # of a name: what it stands for from then on


class Disk:
    """A folder of a disk, as the calls on it change it.

    Args:
        root: The folder that the calls name.
        before: The folder with what is on the disk before the calls, all of it synced; None: `root`.
    """

    def __init__(self, root: Path, before: Path | None = None) -> None:
        self._root, self._top = root, _read(before or root)
        self._names: list[list[Change]] = []  # the changes of names by each call
        self._synced = 0  # of these, the number that a cut leaves in any case

    def apply(self, call: Call) -> None:
        """Change it as a call does that succeeds."""
        path = self._place(call.path)
        if path is None:
            return
        node = self._node(path) or self._renamed(path, call.op)
        if call.op == "fsync":
            self._sync(node)
        elif call.op in ("create", "mkdir"):
            self._name((path, _File() if call.op == "create" else _Folder()))
        elif call.op in ("unlink", "rmdir"):
            self._name((path, None))
        elif call.op in ("rename", "link") and (target := self._place(call.to)) is not None:
            self._name(*([(path, None)] if call.op == "rename" else []), (target, node))
        elif isinstance(node, _File):
            self._write(call, node)

    def _renamed(self, path: PurePath, op: str) -> _File | _Folder | None:
        """Return the file that safetensors wrote under a temporary name, if a call is the first on its final name.

        It renames the file by a system call of its own, which the shim does not see.
        """
        folder = self._node(path.parent)
        if op not in ("read", "fsync") or not isinstance(folder, _Folder):
            return None
        for name, node in folder.now.items():
            if UNSEEN.fullmatch(name):
                self._name((path.with_name(name), None), (path, node))
                return node
        return None

    def _name(self, *changes: tuple[PurePath, _File | _Folder | None]) -> None:
        made: list[Change] = []
        for path, node in changes:
            folder = self._node(path.parent)
            if isinstance(folder, _Folder):
                made.append((folder, path.name, node))
                folder.now.pop(path.name, None)
                if node is not None:
                    folder.now[path.name] = node
        self._names.append(made)

    def _sync(self, node: _File | _Folder | None) -> None:
        if isinstance(node, _File):
            node.sync()
            touching = (number for number, made in enumerate(self._names, 1) if any(new is node for _, _, new in made))
            self._synced = max(self._synced, next(touching, 0))
        else:
            touching = (number for number, made in enumerate(self._names, 1) if any(folder is node for folder, _, _ in made))
            self._synced = max([self._synced, *touching])

    def _write(self, call: Call, node: _File) -> None:
        if call.op == "empty":
            node.changes.append((0, None))
        elif call.op == "truncate":
            node.changes.append((call.at, None))
        elif call.op == "write":
            node.changes.append((call.at, call.data))

    def _place(self, path: str) -> PurePath | None:
        whole = PurePath(path.removesuffix(" (deleted)"))
        return whole.relative_to(self._root) if whole.is_relative_to(self._root) else None

    def _node(self, path: PurePath) -> _File | _Folder | None:
        node: _File | _Folder | None = self._top
        for part in path.parts:
            node = node.now.get(part) if isinstance(node, _Folder) else None
        return node

    def image(self, target: Path, luck: random.Random) -> None:
        """Write what a cut now may leave."""
        least, most = self._synced, len(self._names)
        names: dict[_Folder, dict[str, _File | _Folder]] = {}
        for made in self._names[: luck.choice((least, most, luck.randint(least, most)))]:
            for folder, name, node in made:
                found = names.setdefault(folder, dict(folder.before))
                found.pop(name, None)
                if node is not None:
                    found[name] = node
        _write(self._top, names, target, luck)


def _read(folder: Path) -> _Folder:
    plain = (path for path in folder.iterdir() if not path.is_symlink())
    names = {path.name: _read(path) if path.is_dir() else _File(path.read_bytes()) for path in plain}
    return _Folder(names, dict(names))


def _write(folder: _Folder, names: dict[_Folder, dict[str, _File | _Folder]], target: Path, luck: random.Random) -> None:
    target.mkdir(exist_ok=True)
    for name, node in names.get(folder, folder.before).items():
        if isinstance(node, _Folder):
            _write(node, names, target / name, luck)
        else:
            (target / name).write_bytes(node.left(luck))
