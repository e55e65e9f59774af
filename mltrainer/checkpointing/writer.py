"""Saves checkpoints in a background thread, so that no training step waits for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

Work = Callable[[], None]


class Writer:
    """A background thread that does one task at a time, such as saving a checkpoint, in the order of submission.

    At most one is under way and one waits; a third `submit` waits for room, which bounds the memory. After a task that failed no
    other is done, for a later checkpoint needs the ledger's line of the one before; each later call raises that failure.

    Example:
        with Writer() as writer:
            writer.submit(functools.partial(save, folder, snapshot(tree), manifest))
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: Work | None = None
        self._busy = False
        self._closed = False
        self._error: BaseException | None = None
        # a daemon, so that an exception in the training thread ends the process; half-written files are swept later
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Submit a task; returns at once unless one is running and another waits already.

        Raises:
            MltrainerError: An earlier task failed; this one was not taken.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError("the writer is closed; nothing was saved")
            self._changed.wait_for(lambda: self._waiting is None)
            self._raise_error()  # before the task is queued: a refused task must not be done
            self._waiting = work
            self._changed.notify_all()

    @property
    def has_room(self) -> bool:
        """Whether `submit` would return at once."""
        return self._waiting is None

    def drain(self) -> None:
        """Wait until all submitted tasks are done.

        Raises:
            MltrainerError: One failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None and not self._busy)
            self._raise_error()

    def close(self) -> None:
        """Drain, and end the thread.

        Raises:
            MltrainerError: A task failed.
        """
        try:
            self.drain()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            self._thread.join()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            if error is not failure:
                error.add_note(f"a checkpoint could not be saved either: {failure}")  # the first failure is reported

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (work := self._next()) is not None:
            failure = self._error or _failure_of(work)
            with self._changed:
                self._busy, self._error = False, failure
                self._changed.notify_all()

    def _next(self) -> Work | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closed)
            # Taken and marked as busy under one lock: in between, `drain` would find nothing waiting and nothing under way.
            work, self._waiting = self._waiting, None
            self._busy = work is not None
            self._changed.notify_all()
        return work


def _failure_of(work: Work) -> BaseException | None:
    """Do a task; return its error, for the training thread to raise."""
    try:
        work()
    except BaseException as error:  # an error must reach the training thread, whatever it is
        return error
    return None
