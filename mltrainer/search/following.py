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
    """An attempt, with the reports of its supervisor and its engine so far.

    Attributes:
        attempt: The attempt, with its folder.
        nr: The run's number; None for an earlier process's attempt.
        job: The id of its job in the engine.
        is_given_up: Whether another attempt takes its place. Its folder is still watched: its process may live, and end.
        reported: Its worker's reports.
        alive: Its supervisor's last sign of life; None before the first.
        heard: The time of that sign, or of the job last waiting, in seconds of this process's clock.
        gone: The time at which its engine lost its job, in seconds of this process's clock; None while it has the job.
        where: The name of its machine; empty where unknown.
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
        """The name of its machine, for a sentence."""
        return self.where or "a machine that has not shown itself"

    @property
    def is_awaited(self) -> bool:
        """Whether its end is the end of a run of this process."""
        return self.nr is not None and not self.is_given_up

    @property
    def may_save(self) -> bool:
        """Whether its worker may still be saving its state."""
        return self.alive is not None and self.attempt.ending is None and self.gone is None

    def hear(self) -> bool:
        """Read its supervisor's new lines, and return True where there is a new sign of life."""
        found = read_if_whole(self.attempt.folder / supervisor.ALIVE_FILE)
        alive = supervisor.Alive(**found) if found else None
        is_new = alive is not None and alive != self.alive
        if alive is not None and is_new:
            self.alive, self.heard, self.where = alive, time.monotonic(), alive.machine
        for line in self._lines():
            self.reported.take(line)
        return is_new

    def _lines(self) -> list[bytes]:
        """Return the complete lines that were not read before."""
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
