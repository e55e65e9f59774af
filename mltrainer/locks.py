"""The lock on an open file, which the system frees however the process ends that holds it: flock, or on Windows a locked byte."""

from __future__ import annotations

import contextlib
import errno
import os
from types import ModuleType

fcntl: ModuleType | None = None
msvcrt: ModuleType | None = None
with contextlib.suppress(ImportError):
    import fcntl
if fcntl is None:
    with contextlib.suppress(ImportError):
        import msvcrt

# On Windows no other process can read a locked byte: this one is behind the text of every lock file.
_LOCKED_BYTE = 1 << 30


def take(descriptor: int, *, shared: bool = False, waits: bool = False) -> None:
    """Lock an open file, until its descriptor is closed.

    Args:
        descriptor: The file's descriptor; on Windows it is open for writing.
        shared: Whether other processes may take it as shared meanwhile; Windows has no such lock, and takes it alone.
        waits: Whether to wait for a process that holds it; Windows does not wait.

    Raises:
        BlockingIOError: Another process holds the lock.
        OSError: There are no locks here: the file system has none, or this Python has neither fcntl nor msvcrt.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
    elif msvcrt is not None:
        _lock_byte(msvcrt, descriptor)
    else:
        raise OSError(errno.ENOLCK, "this Python has neither fcntl nor msvcrt, and so no locks")


def _lock_byte(windows: ModuleType, descriptor: int) -> None:
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except PermissionError as error:  # what Windows says of a locked byte
        raise BlockingIOError(errno.EAGAIN, "another process holds the lock") from error
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)
