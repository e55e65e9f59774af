"""What takes a run in place of a tracker, and what a tracker's package does when it is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.sink import Param, Place, Point

BROKEN = """
import sys
if "mltrainer.companions.trackers.program" in sys.orig_argv:
    import os, time
    import {module}
    from pathlib import Path

    calls = []
    kept = {owner}.{method}

    def broken(self, *given, **named):
        calls.append(1)
        {body}

    {owner}.{method} = broken
"""
WRITES = {  # by what a tracker's package writes: module, owner, method
    "tensorboard": (
        "tensorboard.summary.writer.event_file_writer",
        "tensorboard.summary.writer.event_file_writer.EventFileWriter",
        "flush",
    ),
    "trackio": ("sqlite3", "sqlite3", "connect"),
}


@dataclass
class Kept:
    """A tracker that keeps in memory what it is given, run by run."""

    places: list[Place] = field(default_factory=list)
    params: dict[str, Param] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    figures: list[str] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)

    def begin(self, place: Place, options: Any) -> Taking:
        self.places.append(place)
        return Taking(self, place.known or f"its-{place.run}")

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the numbers of a name, with their steps."""
        return [(point.step, point.values[name]) for point in self.points if name in point.values]


@dataclass
class Taking:
    kept: Kept
    id: str

    def params(self, values: Mapping[str, Param]) -> None:
        self.kept.params.update(values)

    def metrics(self, points: Sequence[Point]) -> None:
        self.kept.points += points

    def tags(self, values: Mapping[str, str]) -> None:
        self.kept.tags.update(values)

    def figure(self, name: str, path: Path) -> None:
        self.kept.figures.append(name)

    def artifact(self, name: str, path: Path) -> None:
        self.kept.artifacts.append(name)

    def close(self, state: str) -> None:
        self.kept.closed.append(state)


def break_tracker(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, tracker: str = "tensorboard") -> None:
    """Let a tracker's package do something else where it writes; `calls` are those so far, `kept` does what it should."""
    module, owner, method = WRITES[tracker]
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BROKEN.format(module=module, owner=owner, method=method, body=body), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
