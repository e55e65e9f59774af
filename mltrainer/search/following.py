"""An attempt on another machine, followed by the files that its supervisor writes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from mltrainer.executors import supervisor
from mltrainer.search.attempts import Attempt
from mltrainer.search.reported import Reported
from mltrainer.workspace import read_if_whole


@dataclass
class Followed:
    """An attempt, as far as it was heard of.

    Attributes:
        attempt: Where it lies.
        nr: The run's number; None of an earlier process's.
        job: In the engine.
        is_given_up: Another one takes its place. Its folder is watched all the same: its process may live, and end.
        reported: By its worker.
        alive: Its supervisor's last sign of life; None before the first.
        heard: When that was new, or the job not running; seconds of this process's clock.
        gone: Since when its engine has it no more, likewise; None while it has.
        where: Its machine; empty where unknown.
    """

    attempt: Attempt
    nr: int | None
    job: str
    is_given_up: bool = False
    reported: Reported = field(default_factory=Reported)
    alive: supervisor.Alive | None = None
    heard: float = 0.0
    gone: float | None = None
    where: str = ""
    _read: int = 0  # bytes of its lines

    @property
    def machine(self) -> str:
        """The place where it runs, for a sentence."""
        return self.where or "a machine that has not shown itself"

    @property
    def is_awaited(self) -> bool:
        """Whether its end is that of a run of this process."""
        return self.nr is not None and not self.is_given_up

    @property
    def may_save(self) -> bool:
        """Whether its worker may still be at it."""
        return self.alive is not None and self.attempt.ending is None and self.gone is None

    def hear(self) -> bool:
        """Take in what its supervisor has written since, and return True where that is a new sign of life."""
        found = read_if_whole(self.attempt.folder / supervisor.ALIVE_FILE)
        alive = supervisor.Alive(**found) if found else None
        is_new = alive is not None and alive != self.alive
        if alive is not None and is_new:
            self.alive, self.heard, self.where = alive, time.monotonic(), alive.machine
        for line in self._lines():
            self.reported.take(line)
        return is_new

    def _lines(self) -> list[bytes]:
        """Return the lines that are whole, and were not read before."""
        try:
            with open(self.attempt.folder / supervisor.LINES_FILE, "rb") as file:
                file.seek(self._read)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines()

    def last_words(self) -> str:
        """Return the last line of its log; empty where there is none."""
        try:
            lines = (self.attempt.folder / supervisor.LOG_FILE).read_text("utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""
