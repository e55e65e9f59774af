"""The files that a command which only looks at a project may open: the project's own plain files, none elsewhere.

A clone comes from other people: a link in it may lead to `/etc/passwd`, a record may be a pipe that never ends. The rule is
enforced where every open, listing and renaming of this process passes, in Python's audit events (PEP 578), so that no reader
of a file has to remember it. It does not protect against code: a command that looks at a project runs none of it.
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

FOLLOW_VARIABLE = "MLTRAINER_FOLLOW_LINKS"  # set by the user who made a project's links, where git cannot show that
MOST_LINKS = 40  # Linux's own limit on a path's links
SPARSE_FROM = 1 << 30  # bytes; smaller files are read in a second, holes or not
SPARSE_RATIO = 64  # a file's size over its size on disk; no real file of this size compresses so well
# Events whose path is followed to its end; the last two are opened in C.
_FOLLOWED = {"open", "os.listdir", "os.scandir", "os.truncate", "sqlite3.connect", "ctypes.dlopen"}
_NAMED = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.chmod"}  # only to the folder of the name
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


class OutsideError(InputError, PermissionError):
    """A path of the project leads out of it, or is no plain file.

    It is a `PermissionError`, too: code that goes on without an unreadable file goes on without this one.
    """

    def __init__(self, message: str, *, where: str, hint: str) -> None:
        super().__init__(message, where=where, hint=hint)
        self.strerror = message


Tracks = Callable[[str, str], bool]


class _Limits:
    """The limits on opening files; nothing is limited before a root is known.

    Attributes:
        is_on: Whether there are limits.
        only_looks: Whether nothing of the project is run, and each file is read within limits.
        root: The project's folder, resolved; empty before it is known.
        tracks: The function that recognizes the project's links, see `looking`.
        known: The links that were checked, and whether the user made them.
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
    """Apply the rule to this process for the length of a block, from when `within` names the project.

    Args:
        tracks: A function from the project's folder and a link's path in it to whether the link came with the project; called
            only for links that lead out.
        only_looks: Whether the limits on files' sizes apply as well; else files may have any size.
    """
    _hook()
    _process.append(_Limits(only_looks, tracks))
    try:
        yield
    finally:
        _process.pop()


@contextlib.contextmanager
def looking_here(tracks: Tracks, root: str) -> Iterator[None]:
    """Apply the rule to this thread alone for the length of a block: in a notebook other threads may train meanwhile."""
    _hook()
    before, _thread.limits = _thread.limits, _Limits(True, tracks)
    _thread.limits.root = root
    try:
        yield
    finally:
        _thread.limits = before


def _hook() -> None:
    if not _hooked:
        sys.addaudithook(_audit)  # for good: an audit hook cannot be removed
        _hooked.append(True)


def is_looking() -> bool:
    """Whether this thread may only look."""
    return _limits().only_looks


def within(root: str) -> None:
    """Set the resolved folder of the project that is looked at; without effect outside of `looking`."""
    limits = _limits()
    if limits.is_on and limits.root != root:
        limits.known, limits.root = {}, root


def leaving_link(root: str, path: str) -> tuple[str, str] | None:
    """Return the link by which a path below a folder leaves it, and the link's target; None where it stays inside.

    Args:
        root: The folder, resolved.
        path: An absolute path below it; a path that does not exist leads nowhere else.
    """
    # Link by link, not by realpath, which gives a path's end and not the link that leads there.
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
    # Files that the check itself opens, and the git that it calls, would be checked again without an end.
    _thread.is_checking = True
    try:
        for given in arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]:
            if isinstance(given, (str, bytes, os.PathLike)):
                _check(_limits(), os.path.abspath(_path(event, os.fsdecode(given))), is_followed=event in _FOLLOWED)
    finally:
        _thread.is_checking = False


def _path(event: str, given: str) -> str:
    """Return the path of the opened file: a database may be given as a URI."""
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
    """Return the folders of Python and its packages, which may be in the project and hold links that lead out."""
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
        # By stat, which opens nothing: opening a pipe would wait, and a device may act on it.
        found = os.stat(path)
    except OSError:
        return
    name = os.path.relpath(path, root)
    if kind := _KINDS.get(stat.S_IFMT(found.st_mode)):
        raise OutsideError(f"is {kind}, expected a file", where=name, hint="remove it")
    if stat.S_ISREG(found.st_mode) and found.st_size > max(SPARSE_FROM, SPARSE_RATIO * 512 * found.st_blocks):
        raise OutsideError(f"is a sparse file of {found.st_size} bytes that hold nothing", where=name, hint="remove it")
