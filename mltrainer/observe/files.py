"""The files that a program or a training opens, each once: the verdict on it binds those that it read.

Also loaded by its path into a program: it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

HERE = os.path.dirname(os.path.realpath(__file__))
BEGINS = os.path.join(os.path.dirname(HERE), "wrap", "observer")  # what has this module loaded, in a program
NO_FILES = ("/proc/", "/sys/", "/dev/")
WRITES = os.O_WRONLY | os.O_RDWR
OTHERS = ("sqlite3.connect", "ctypes.dlopen")  # audit events of other openings, whose first argument is the path
ANEW = os.O_WRONLY | os.O_TRUNC | os.O_CREAT  # a file opened with one of these is not read first


def begin(settings: Settings, process: Process) -> Files:
    """Return the observer of this process, which notes the interpreter, and files from here on."""
    files = Files(settings, process)
    files.note_python()
    return files


class Files:
    """Notes the files that the interpreter opens, by its audit events; `note_read` adds those that C code opens.

    Args:
        settings: Their folder is left out: it is the observer's own.
        process: Its name, and where the lines go.
    """

    def __init__(self, settings: Settings, process: Process) -> None:
        libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
        own = (settings.folder, HERE, BEGINS, *site.getsitepackages(), *(path for path in libraries if path))
        self._left_out = (*NO_FILES, *(os.path.join(os.path.realpath(path), "") for path in own))
        self._lines = process.lines("files")
        self._noted_files: set[tuple[str, str]] = set()
        self._known_paths: set[tuple[str, int]] = (
            set()
        )  # absolute paths as they were given: to resolve one takes longer than to know it
        self._is_on = True
        self._busy = threading.local()
        # Last: from here on every opening of this process comes by, and needs all that is set above.
        sys.addaudithook(self._audit)

    def restart(self) -> None:
        """Forget the files seen so far, and write to the process's present files."""
        with contextlib.suppress(OSError):  # lost lines of the run before are no fault of this one
            self._lines.close()
        self._noted_files.clear()
        self._known_paths.clear()
        self._is_on = True

    def end(self) -> None:
        """Note nothing more until `restart`."""
        self._is_on = False
        self._lines.close()

    def note_python(self) -> None:
        """Note the interpreter, which is all that is known of a program without torch."""
        self._note("python", sys.prefix, sys.executable, sys.version.split()[0])

    def attach(self, torch: Any) -> None:
        """Note the program's interpreter, versions and threads."""
        self._note("prefix", sys.prefix)
        self._note("interpreter", sys.executable)
        self._note("about", {"python": sys.version.split()[0], "torch": torch.__version__, "threads": torch.get_num_threads()})

    def note_read(self, path: str) -> None:
        """Note a file that is read without an audit event."""
        self._opened(path, os.O_RDONLY)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            self._opened(os.fsdecode(arguments[0]), int(arguments[2] or 0))
        elif event in OTHERS and isinstance(arguments[0], (str, bytes, os.PathLike)):
            self._opened(os.fsdecode(arguments[0]), os.O_RDONLY)

    def _opened(self, given: str, flags: int) -> None:
        if not self._is_on or getattr(self._busy, "now", False) or (given, flags) in self._known_paths:
            return
        # A relative path means another file once the program has changed its folder.
        if os.path.isabs(given):
            self._known_paths.add((given, flags))
        path = os.path.realpath(given)
        opening = (_way(flags), path)
        if opening not in self._noted_files and not path.startswith(self._left_out) and "site-packages" not in path:
            self._noted_files.add(opening)
            self._note(*opening)

    def _note(self, *values: Any) -> None:
        self._busy.now = True  # files opened to write this are not noted
        try:
            # The program may have closed all files; and no fault of noting may end what opens a file.
            with contextlib.suppress(OSError, ValueError):
                self._lines.write(*values)
        finally:
            self._busy.now = False


def _way(flags: int) -> str:
    """Return a file's way of opening, one of `reads.WAYS`: read, rewritten, appended to, or read and changed in place."""
    if not flags & WRITES:
        return "read"
    if flags & os.O_APPEND:
        return "appended"
    return "written" if flags & ANEW else "changed"
