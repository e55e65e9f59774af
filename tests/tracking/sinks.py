"""What takes a run in place of a tracker, and what a tracker's package does when it is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mltrainer.tracking.sink import Param, Place, Point

BROKEN = """
import sys
if "mltrainer.tracking.program" in sys.orig_argv:
    import os, time
    import tensorboard.summary.writer.event_file_writer as writer
    from pathlib import Path

    calls = []
    kept = writer.EventFileWriter.flush

    def flush(self):
        calls.append(1)
        {body}

    writer.EventFileWriter.flush = flush
"""


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


def break_tensorboard(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Let TensorBoard's writer do something else in a tracker's process; `calls` are those so far, `kept` does what it should."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BROKEN.format(body=body), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
