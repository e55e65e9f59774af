"""The new lines of a file that another process appends to."""

from __future__ import annotations

import os
from pathlib import Path

REMEMBERED = 80  # bytes before the read position: a line of a chain holds a digest of all lines before it


class Tail:
    """A file that grows, read piece by piece; nothing is held open.

    Args:
        path: The file; it need not exist yet.
        piece: The largest number of bytes to read at once, more than any line has; -1: all.
    """

    def __init__(self, path: Path, piece: int = -1) -> None:
        self._path, self._piece = path, piece
        self._mark: tuple[int, ...] = ()
        self._offset = 0
        self._before = b""

    def read(self) -> tuple[bool, bytes]:
        """Return True if the file was cut back or replaced since the last read, and its new whole lines.

        A file that was cut back, or replaced, is read from its beginning again. A file that is read in pieces has more lines
        until none is returned.
        """
        try:
            stat = os.stat(self._path)
            mark = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
            if mark == self._mark:
                return False, b""
            self._mark = mark
            return self._read()
        except FileNotFoundError:
            was_read = self._offset > 0
            self._mark, self._offset, self._before = (), 0, b""
            return was_read, b""

    def _read(self) -> tuple[bool, bytes]:
        with open(self._path, "rb") as file:
            file.seek(self._offset - len(self._before))
            # By the bytes before the position, not by the inode: a file that was cut back and has grown again keeps its inode.
            has_restarted = file.read(len(self._before)) != self._before
            if has_restarted:
                self._offset, self._before = 0, b""
                file.seek(0)
            data = file.read(self._piece)
        if len(data) == self._piece:
            self._mark = ()  # there may be more
        # A line without its end is still being written, and is read again with its end.
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._before = (self._before + whole[-REMEMBERED:])[-REMEMBERED:]
        return has_restarted, whole
