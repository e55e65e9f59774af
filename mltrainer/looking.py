"""What a command that only looks at a project may open: the project's own plain files, nothing that lies elsewhere.

A clone is other people's: a link in it may lead to `/etc/passwd`, a record may be a pipe that never ends. The rule stands
at the one door that every open, listing and renaming of this process goes through, Python's audit events (PEP 578), so that
no reader of a file has to remember it. It is no fence against code: a command that looks at a project runs none of it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from mltrainer.errors import InputError

FOLLOW_VARIABLE = "MLTRAINER_FOLLOW_LINKS"  # set by whoever made a project's links, where no git can tell
MOST_LINKS = 40  # Linux's own limit on a path's links
SPARSE_FROM = 1 << 30  # bytes; smaller files are read in a second, holes or not
SPARSE_RATIO = 64  # size over what lies on the disk; no real file of this size compresses so well
# Events whose path is followed to its end; the last two are openings that happen in C.
_FOLLOWED = {"open", "os.listdir", "os.scandir", "os.truncate", "sqlite3.connect", "ctypes.dlopen"}
_NAMED = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.chmod"}  # only to the folder of the name
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


class OutsideError(InputError, PermissionError):
    """A path of the project leads out of it, or is no plain file.

    A `PermissionError` too: whoever goes on without a file that may not be read goes on without this one.
    """

    def __init__(self, message: str, *, where: str, hint: str) -> None:
        super().__init__(message, where=where, hint=hint)
        self.strerror = message


Tracks = Callable[[str, str], bool]


class _Limits:
    """Where somebody may look; nothing is limited before a root is known.

    Attributes:
        only_looks: Whether nothing of the project is run, and each file is read within limits.
        root: The project's folder.
        tracks: As of `looking`.
        known: The links that were asked about, and whether the user made them.
    """

    def __init__(self, only_looks: bool = False, tracks: Tracks | None = None) -> None:
        self.is_on = tracks is not None
        self.only_looks, self.root = only_looks, ""
        self.tracks: Tracks = tracks or (lambda _root, _path: True)
        self.known: dict[str, bool] = {}


class _OfThread(threading.local):
    limits: _Limits | None = None  # None: those of the process
    is_checking = False


_process = [_Limits()]
_thread = _OfThread()
_hooked: list[bool] = []


def _limits() -> _Limits:
    return _thread.limits or _process[-1]


@contextlib.contextmanager
def looking(tracks: Tracks, *, only_looks: bool = True) -> Iterator[None]:
    """Hold this process to the rule for the length of a block, from when `within` names the project.

    Args:
        tracks: Whether a link, by its path relative to the project's folder, came with the project; asked only of links
            that lead out.
        only_looks: Hold it to the limits of files as well; else to the project's own plain files, of any size.
    """
    _hook()
    _process.append(_Limits(only_looks, tracks))
    try:
        yield
    finally:
        _process.pop()


@contextlib.contextmanager
def looking_here(tracks: Tracks, root: str) -> Iterator[None]:
    """Hold this thread alone to the rule for the length of a block: in a notebook others may train meanwhile."""
    _hook()
    before, _thread.limits = _thread.limits, _Limits(True, tracks)
    _thread.limits.root = root
    try:
        yield
    finally:
        _thread.limits = before


def _hook() -> None:
    if not _hooked:
        sys.addaudithook(_audit)  # for good: no hook can be taken away
        _hooked.append(True)


def is_looking() -> bool:
    """Whether this thread may only look."""
    return _limits().only_looks


def within(root: str) -> None:
    """Name the folder, resolved, of the project that is looked at; without effect outside of `looking`."""
    limits = _limits()
    if limits.is_on and limits.root != root:
        limits.known, limits.root = {}, root


def leaving_link(root: str, path: str) -> tuple[str, str] | None:
    """Return the link by which a path below a folder leaves it, and where that leads; None where it stays inside.

    Args:
        root: The folder, resolved.
        path: An absolute path below it; what does not exist leads nowhere else.
    """
    # Link by link and not by realpath, which tells where a path leads and not by which of its links.
    at, rest = root, os.path.relpath(path, root).split(os.sep)
    for _ in range(MOST_LINKS * 100):
        if not rest:
            return None
        name = rest.pop(0)
        link = os.path.join(at, name)
        try:
            aim = os.readlink(link)
        except OSError:
            at = link
            continue
        target = os.path.normpath(os.path.join(at, aim))
        if not _is_below(root, target):
            return link, target
        at, rest = root, [part for part in os.path.relpath(target, root).split(os.sep) if part != "."] + rest
    return link, "links without an end"


def _is_below(root: str, path: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip(os.sep)}{os.sep}")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not (event in _FOLLOWED or event in _NAMED) or _thread.is_checking or not _limits().root:
        return
    # What the check itself opens, and the git that it asks, would be checked again without an end.
    _thread.is_checking = True
    try:
        for given in arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]:
            if isinstance(given, (str, bytes, os.PathLike)):
                _check(_limits(), os.path.abspath(_path(event, os.fsdecode(given))), is_followed=event in _FOLLOWED)
    finally:
        _thread.is_checking = False


def _path(event: str, given: str) -> str:
    """Return the path that is opened: a database may be named by a URI."""
    is_uri = event == "sqlite3.connect" and given.startswith("file:")
    return unquote(urlsplit(given).path) if is_uri else given


def _check(limits: _Limits, path: str, is_followed: bool) -> None:
    """Refuse a path of the project that leads out of it or is no plain file; all other paths are this program's own."""
    root = limits.root
    if not _is_below(root, path) or path == root or any(_is_below(place, path) for place in _interpreter(root)):
        return
    place = path if is_followed else os.path.dirname(path)
    left = leaving_link(root, place)
    if left is not None and not _is_own(limits, left[0]):
        raise OutsideError(
            f"is a link out of the project, to {left[1]}: nothing is read or written through it",
            where=os.path.relpath(left[0], root),
            hint=f"remove the link; if you made it yourself, keep it out of git, or set {FOLLOW_VARIABLE}=1",
        )
    if is_followed:
        _check_kind(root, path)


def _interpreter(root: str) -> tuple[str, ...]:
    """Return the folders of Python and its packages, which may lie in the project and hold links that lead out."""
    return tuple(place for place in (sys.prefix, sys.base_prefix) if place != root)


def _is_own(limits: _Limits, link: str) -> bool:
    """Return True if the user made a link: the project's git does not track it, or the user says so."""
    if os.environ.get(FOLLOW_VARIABLE) == "1":
        return True
    if link not in limits.known:
        limits.known[link] = not limits.tracks(limits.root, os.path.relpath(link, limits.root))
    return limits.known[link]


def _check_kind(root: str, path: str) -> None:
    try:
        # Asked by stat, which opens nothing: to open a pipe would wait, and a device may act on it.
        found = os.stat(path)
    except OSError:
        return
    name = os.path.relpath(path, root)
    if kind := _KINDS.get(stat.S_IFMT(found.st_mode)):
        raise OutsideError(f"is {kind}, expected a file", where=name, hint="remove it")
    if stat.S_ISREG(found.st_mode) and found.st_size > max(SPARSE_FROM, SPARSE_RATIO * 512 * found.st_blocks):
        raise OutsideError(f"is a sparse file of {found.st_size} bytes that hold nothing", where=name, hint="remove it")
