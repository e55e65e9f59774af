"""A tracker that writes what it is sent as lines of JSON."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mltrainer.companions.trackers.sink import Param, Place, Point


class Run:
    """A run, as lines of a file."""

    def __init__(self, file: Path, run: str) -> None:
        self.id, self._file = run, file

    def params(self, values: Mapping[str, Param]) -> None:
        self._write("params", dict(values))

    def metrics(self, points: Sequence[Point]) -> None:
        for point in points:
            self._write("metrics", {"step": point.step, **point.values})

    def tags(self, values: Mapping[str, str]) -> None:
        self._write("tags", dict(values))

    def figure(self, name: str, path: Path) -> None:
        self._write("figure", name)

    def artifact(self, name: str, path: Path) -> None:
        self._write("artifact", name)

    def close(self, state: str) -> None:
        self._write("close", state)

    def _write(self, what: str, value: Any) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"run": self.id, what: value}) + "\n")


class Lines(BaseModel):
    """The options of the tracker."""

    file: str = "lines.jsonl"

    def begin(self, place: Place) -> Run:
        """Begin a run, or go on with it."""
        return Run(place.root / self.file, place.run)

    def check(self, root: Path, project: str) -> None:
        """Prove in planning that a run could be begun."""
        (root / self.file).touch()
