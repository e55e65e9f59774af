"""A worker's reports on the run that it trains, line by line."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mltrainer.records.event import Error, Running
from mltrainer.search.ended import Ended


@dataclass
class Reported:
    """A worker's reports so far.

    Attributes:
        running: The progress of its run; None while it has none.
        ended: The end of its run; None before it.
        error: The worker's own error, which ends it; None where it has none.
    """

    running: Running | None = None
    ended: Ended | None = None
    error: Error | None = None

    def take(self, line: bytes) -> None:
        """Take in a line; progress that comes after a run's end is ignored."""
        values = json.loads(line)
        event = values.pop("event")
        if event == "end":
            self.ended, self.running = Ended(**values), None
        elif event == "beat" and self.running is not None:
            self.running = Running(nr=self.running.nr, **values)
        elif event == "error":
            self.error = Error(event=event, **values)
