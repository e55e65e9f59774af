"""A running search's progress: as events, and in a file, which `mltrainer status` reads elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mltrainer.follow.live import LIVE_FILE
from mltrainer.records.event import Running
from mltrainer.tools.program import Events
from mltrainer.workspace import plain, write_json

EVERY_S = 1.0


class Live:
    """Reports a study's progress, at once when a run has ended, else once a second.

    Args:
        folder: The study's.
        events: Where it is reported.
    """

    def __init__(self, folder: Path, events: Events) -> None:
        self._path, self._events = folder / LIVE_FILE, events
        self._state: dict[str, Any] = {}
        self._until: float | None = None
        self._runs_each = 1
        self._told_at = self._written_at = 0.0

    def at(self, what: str, done: int, planned: int, left_s: float | None = None, runs_each: int = 1, **values: Any) -> None:
        """Note the study's progress, which the next `tell` reports.

        Args:
            what: `trials`, or `runs` of the comparison.
            done: Number of those that have ended.
            planned: Number of all.
            left_s: The seconds that the rest will take.
            runs_each: Number of run numbers that each of them has.
            values: `metric` and `best`, of what is ranked.
        """
        state = {"what": what, "done": done, "planned": planned, **values}
        if state == self._state:
            return
        self._state = state
        self._runs_each = runs_each
        self._until = None if left_s is None else time.monotonic() + left_s
        self._told_at = 0.0

    def tell(self, running: Sequence[Running]) -> None:
        """Report the noted progress, with each worker's run."""
        now = time.monotonic()
        if not self._state or now - self._told_at < EVERY_S:
            return
        self._told_at = now
        left = None if self._until is None or self._until < now else round(self._until - now, 1)  # what is over, was wrong
        numbered = [one.model_copy(update={"nr": one.nr // self._runs_each}).written() for one in running]
        told = plain({**self._state, "left_s": left, "running": numbered})
        self._events.send("study", **told)
        if now - self._written_at >= EVERY_S:
            self._written_at = now
            write_json(self._path, told)

    def close(self) -> None:
        """Leave no file behind that says that the study runs."""
        self._path.unlink(missing_ok=True)
