"""This process of the program, by name, and its files; a fork continues under another name."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple, TextIO

_now = time.monotonic_ns  # bound before calls of clocks are traced: the observer's own are none of the program's

ROOM = 1 << 16  # bytes; the growth of a file in memory
NAME_DIGITS = 8  # of the digest that names a process without a rank


class Settings(NamedTuple):
    """The settings of the observation; from an environment variable, as JSON.

    Attributes:
        folder: The folder of the observer's files.
        program: The folder that the program runs in.
        steps: The number after which the program is ended; 0 for never.
        kill: The number after which the process is killed; 0 for never.
        files: Whether opened files are noted.
        trace: Whether all that is computed is noted.
        near: The step before which each line is looked at again, however often it was before; 0 for none.
        quiet: Whether nothing is noted from the end of the first step until then.
        signals: Whether steps are looked at more closely than their bits.
        disturbances: The modules that change within the process what may not matter, as `disturbances` lists them.
        seed: The seed of the generators of a program that imports TensorFlow or JAX, whose operations then become deterministic;
            None leaves the program as it is.
        replay: The number of backward passes of which one is computed twice; 0 for none.
        speed: Whether the times of steps are noted, and nothing else.
    """

    folder: str = os.devnull
    program: str = ""
    steps: int = 0
    kill: int = 0
    files: bool = False
    trace: bool = False
    signals: bool = False
    disturbances: Sequence[str] = ()
    near: int = 0
    quiet: bool = False
    seed: int | None = None
    replay: int = 0
    speed: bool = False


class Process:
    """A process, named so that the same one of another run of the program has the same name.

    The name is its rank where the program is distributed, else a digest of its arguments, with no word of the folders that
    each run has of its own; a fork adds its number to its parent's.

    Args:
        settings: The settings of the observation.
    """

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.folder
        self.name = os.environ.get("RANK") or _process_name(
            getattr(sys, "orig_argv", sys.argv)[1:], _own_folders(settings.program)
        )
        self._forks = 0
        self._after_fork: list[Any] = []
        os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        self._forks += 1

    def _in_child(self) -> None:
        self.name, self._forks = f"{self.name}.{self._forks}", 0
        for reset in self._after_fork:
            reset()

    def on_fork(self, reset: Any) -> None:
        """Register a function to call in each process that is forked off."""
        self._after_fork.append(reset)

    def end(self) -> None:
        """End the process, whatever would come next: its lines are complete."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(0)

    def lines(self, kind: str) -> LineWriter:
        """Return the writer of this process's lines of a kind."""
        return LineWriter(self, kind)

    def open(self, kind: str) -> TextIO:
        """Open this process's file of a kind."""
        return open(self._path(kind), "a", encoding="utf-8")

    def map(self, kind: str) -> Mapped | BinaryIO:
        """Open this process's file of a kind in memory; as a plain file if the file system does not map files."""
        try:
            return Mapped(self._path(kind))
        except OSError:
            return open(self._path(kind), "ab", buffering=0)

    def _path(self, kind: str) -> str:
        return os.path.join(self.folder, f"{kind}-{self.name}-{os.getpid()}.jsonl")


class Mapped:
    """A file of lines that is written through memory: a line is in it at once, however the process ends, for no system call.

    Zeros follow the last line.

    Args:
        path: The file; its content stays.

    Raises:
        OSError: There is no room for it, or the file system does not map files.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "a+b") as file:
            file.seek(0)
            self._end = len(file.read().rstrip(b"\0"))
            file.truncate(self._end)
        self._grow()

    def _grow(self) -> None:
        with open(self._path, "a+b") as file:
            file.write(bytes(ROOM))  # zeros in place of a hole: a full disk is an error here, and no signal later
            file.flush()
            self._memory = mmap.mmap(file.fileno(), 0)

    def write(self, line: bytes) -> None:
        """Append a line, which is shorter than the file grows by; its end comes last, so that half of one is none."""
        end = self._end + len(line)
        if end > len(self._memory):
            self._grow()
        self._memory[self._end : end - 1] = line[:-1]
        self._memory[end - 1 : end] = line[-1:]
        self._end = end


def _own_folders(program: str) -> list[str]:
    """Return the folders of this run, the longest first: for code and for temporary files, as given and by their real paths."""
    folders = [path for path in (program, os.environ.get("TMPDIR")) if path]
    return sorted({*folders, *map(os.path.realpath, folders)}, key=len, reverse=True)


def _process_name(arguments: list[str], folders: list[str]) -> str:
    """Return a process's name by its arguments; those that `multiprocessing` spawns differ only by their order."""
    # Their arguments name pipes by number, which differ from run to run.
    words = "spawned" if "--multiprocessing-fork" in arguments else "\0".join(arguments)
    for folder in folders:
        words = words.replace(folder, "")
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:NAME_DIGITS]


def is_rank(name: str) -> bool:
    """Return True if a process's name is its rank; a digest may consist of digits alone, too, but is longer."""
    return name.isdigit() and len(name) < NAME_DIGITS


class LineWriter:
    """The lines that a process writes of a kind, each a JSON list that begins with the time."""

    def __init__(self, process: Process, kind: str) -> None:
        self._process, self._kind = process, kind
        self._file: TextIO | None = None
        self._lock = threading.RLock()  # a file takes no lines of several threads at once
        os.register_at_fork(before=self.flush)  # else a fork would write once more what is held back
        process.on_fork(self._reset)

    def _reset(self) -> None:
        self._file = None  # the parent's stays open under its own name
        self._lock = threading.RLock()  # another thread of the parent may have held the old one

    def write(self, *values: Any, flush: bool = True) -> None:
        """Write one line."""
        with self._lock:
            if self._file is None:
                self._file = self._process.open(self._kind)
            self._file.write(json.dumps([_now(), *values]) + "\n")
            if flush:
                self._file.flush()

    def flush(self) -> None:
        """Write the lines that are held back."""
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def close(self) -> None:
        """Close the file; the next line is written to the process's present file.

        Raises:
            OSError: The held-back lines could not be written.
        """
        with self._lock:
            # Let go first: a file whose closing fails is closed all the same, and takes no line again.
            file, self._file = self._file, None
            if file is not None:
                file.close()
