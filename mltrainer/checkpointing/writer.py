"""Saves checkpoints in a background thread, so that no training step waits for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from mltrainer.checkpointing.format import Snapshot, save

Then = Callable[[], None]


@dataclass(frozen=True)
class _Job:
    folder: Path
    snapshot: Snapshot
    manifest: Mapping[str, Any]
    then: Then | None
    first: Then | None


class Writer:
    """A background thread that saves one checkpoint at a time, in the order in which they were submitted.

    At most one save is under way and one waits; a third `submit` waits for room, which bounds the memory. A save that fails is
    reported by the next call, once; what was submitted meanwhile is saved all the same.

    Example:
        with Writer() as writer:
            writer.submit(folder, snapshot(tree), manifest)
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: _Job | None = None
        self._busy = False
        self._closed = False
        self._error: BaseException | None = None
        # a daemon, so that an exception in the training thread ends the process; what is half-written is swept later
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True)
        self._thread.start()

    def submit(
        self,
        folder: Path,
        snapshot: Snapshot,
        manifest: Mapping[str, Any],
        then: Then | None = None,
        first: Then | None = None,
    ) -> None:
        """Hand over a checkpoint; returns at once unless one is under way and another one waits already.

        Args:
            folder: As in `format.save`.
            snapshot: As in `format.save`.
            manifest: As in `format.save`; must not be changed afterwards.
            then: Called in the writer's thread once it is written, such as to delete what is no longer kept.
            first: Called there before, such as to bring to the disk what it must not be found without.

        Raises:
            MltrainerError: An earlier save failed; this one was not taken.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the writer is closed; {folder.name} was not saved")
            self._changed.wait_for(lambda: self._waiting is None)
            self._raise_error()  # before the job is queued: a refused one must not be saved all the same
            self._waiting = _Job(folder, snapshot, manifest, then, first)
            self._changed.notify_all()

    @property
    def has_room(self) -> bool:
        """Whether `submit` would return at once."""
        return self._waiting is None

    def drain(self) -> None:
        """Wait until every submitted checkpoint is on the disk.

        Raises:
            MltrainerError: A save failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None and not self._busy)
            self._raise_error()

    def close(self) -> None:
        """Drain, and end the thread.

        Raises:
            MltrainerError: A save failed.
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
            error.add_note(f"a checkpoint could not be saved either: {failure}")  # the first failure is the one to tell

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        while (job := self._next()) is not None:
            failure = _failure_of(job)
            with self._changed:
                self._busy = False
                # The first one is kept: it is the one to tell, and the others may only follow from it.
                self._error = self._error or failure
                self._changed.notify_all()

    def _next(self) -> _Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is not None or self._closed)
            # Taken and marked as busy under one lock: in between, `drain` would find nothing waiting and nothing under way.
            job, self._waiting = self._waiting, None
            self._busy = job is not None
            self._changed.notify_all()
        return job


def _failure_of(job: _Job) -> BaseException | None:
    """Save one checkpoint; return what went wrong, for the training thread to raise."""
    try:
        if job.first is not None:
            job.first()
        save(job.folder, job.snapshot, job.manifest)
        if job.then is not None:
            job.then()
    except BaseException as error:  # an error must reach the training thread, whatever it is
        return error
    return None
