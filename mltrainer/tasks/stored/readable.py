"""A stored file as a file object for libraries, with a current position; every byte is checked against the manifest."""

from __future__ import annotations

import io

from mltrainer.tasks.stored.manifest import StoredFile


class Readable(io.RawIOBase):
    """Reads a stored file from its current position.

    Args:
        file: The stored file.
    """

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self._file, self._size, self._place = file, file.manifest.size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place, and return it."""
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, fewer where the file ends."""
        left = self._size - self._place
        data = self._file.read(self._place, left if size < 0 else min(size, left)) if left > 0 and size else b""
        self._place += len(data)
        return data
