"""TensorBoard: an event file in a folder for each run; `tensorboard --logdir` reads it while it grows.

TensorBoard draws no SVG, so that figures are copied beside the event file, and named in a text.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from mltrainer.companions.trackers.folders import check_folder
from mltrainer.companions.trackers.sink import Param, Place, Point, Sink
from mltrainer.configs.tracking import TensorBoard
from mltrainer.reports import markdown as md


class _Run:
    """A run as a folder with event files; whoever goes on with it adds one."""

    def __init__(self, folder: Path, run: str, step: int) -> None:
        self.id = run
        self._folder, self._step = folder, step
        self._tags: dict[str, str] = {}
        self._files: list[str] = []
        self._writer = EventFileWriter(str(folder), max_queue_size=1000)

    def params(self, values: Mapping[str, Param]) -> None:
        """Write the config as hyperparameters, and as a table to read."""
        self._write(hparams_pb(dict(values), trial_id=self.id))
        self._write(text_pb("config", table("key", values)))
        self._writer.flush()

    def metrics(self, points: Sequence[Point]) -> None:
        """Write a scalar for each number."""
        for point in points:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in point.values.items()]
            self._writer.add_event(Event(wall_time=point.time_s, step=point.step, summary=Summary(value=values)))
            self._step = max(self._step, point.step)
        # A method's arguments must be on the disk when it returns; the writer by itself would wait for two minutes.
        self._writer.flush()

    def tags(self, values: Mapping[str, str]) -> None:
        """Write all tags so far as a table."""
        self._tags.update(values)
        self._write(text_pb("tags", table("tag", self._tags)))
        self._writer.flush()

    def figure(self, name: str, path: Path) -> None:
        """Copy a figure into the run's folder, and name it."""
        self._copy("figures", name, path)

    def artifact(self, name: str, path: Path) -> None:
        """Copy a file into the run's folder, and name it."""
        self._copy("artifacts", name, path)

    def _copy(self, kind: str, name: str, path: Path) -> None:
        target = self._folder / kind / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        self._files.append(f"{kind}/{name}")

    def close(self, state: str) -> None:
        """Name the files that were copied, and end the event file."""
        if self._files:
            lines = "\n".join(f"- {name}" for name in self._files)
            self._write(text_pb("files", f"In the run's folder, {self._folder.name}:\n\n{lines}"))
        self._writer.close()

    def _write(self, summary: Summary) -> None:
        self._writer.add_event(Event(wall_time=time.time(), step=self._step, summary=summary))


def table(first: str, values: Mapping[str, Param]) -> str:
    """Return values as a Markdown table."""
    return md.table((first, "value"), [(key, str(value).replace("|", "&#124;")) for key, value in values.items()])


def begin(place: Place, options: TensorBoard) -> Sink:
    """Begin a run, or go on with it, in a folder that is named by its phase and id."""
    return _Run(place.root / options.folder / f"{place.phase}-{place.run}", place.run, place.step)


def check(root: Path, project: str, options: TensorBoard) -> None:
    """Write in the folder of event files, and leave none."""
    check_folder(root, options.folder, "tracking.tensorboard.folder")
