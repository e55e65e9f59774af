"""What a worker reports of the run that it trains, line by line."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mltrainer.records.event import Error, Running
from mltrainer.search.ended import Ended


@dataclass
class Reported:
    """A worker's reports so far.

    Attributes:
        running: How far its run is; None while it has none.
        ended: The end of its run.
        error: Its own error, which ends it.
    """

    running: Running | None = None
    ended: Ended | None = None
    error: Error | None = None

    def take(self, line: bytes) -> None:
        """Take in a line; progress that comes after a run's end is nobody's."""
        values = json.loads(line)
        event = values.pop("event")
        if event == "end":
            self.ended, self.running = Ended(**values), None
        elif event == "beat" and self.running is not None:
            self.running = Running(nr=self.running.nr, **values)
        elif event == "error":
            self.error = Error(event=event, **values)
