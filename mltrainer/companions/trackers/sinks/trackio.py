"""Trackio: a run in a database file on this machine, which `trackio show` draws.

Its `log` hands numbers to a thread, which only warns of those that are lost; its storage, which is given them here, has them
on the disk when it returns, and passes over those that it has.
"""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mltrainer.companions.trackers.folders import check_folder
from mltrainer.companions.trackers.sink import Param, Place, Point, Sink
from mltrainer.configs.tracking import Trackio

FETCHED_FROM = ("TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID")  # where they are set, its storage first asks Hugging Face's Hub
MACHINE = "system/"
KIND = "reports"


class _Run:
    """A run that Trackio knows."""

    def __init__(self, trackio: Any, place: Place, project: str) -> None:
        self.id = place.known or place.run
        self._trackio, self._step = trackio, place.step
        self._project, self._name = project, f"{place.phase}-{place.run}"
        self._run = {"project": project, "run": self._name, "run_id": self.id}
        known = trackio.SQLiteStorage.get_run_config(**self._run)
        self._config: dict[str, Param] = known or {"_Group": place.phase, "_Created": _moment(time.time())}

    def params(self, values: Mapping[str, Param]) -> None:
        """Set the config."""
        self.tags(values)

    def metrics(self, points: Sequence[Point]) -> None:
        """Log the numbers by step, and the machine's by time, on pages of their own."""
        machine = [point for point in points if _is_of_the_machine(point)]
        rows = [point for point in points if not _is_of_the_machine(point)]
        self._log(rows, [f"{point.step}/{next(iter(point.values))}" for point in rows])
        self._trackio.SQLiteStorage.bulk_log_system(
            **self._run,
            metrics_list=[dict(point.values) for point in machine],
            timestamps=[_moment(point.time_s) for point in machine],
        )
        self._step = max([self._step, *(point.step for point in rows)])

    def tags(self, values: Mapping[str, Param]) -> None:
        """Set words in the config, by which Trackio groups and compares runs: it has no tags."""
        self._config.update(values)
        self._log([Point(0, time.time(), {})], ["config"])  # which is written beside numbers alone

    def figure(self, name: str, path: Path) -> None:
        """Log a figure as a page, which draws SVG."""
        page = self._trackio.Html(path.read_text("utf-8"))
        page._save(self._project, self._name, self._step)
        shown = Point(self._step, time.time(), {name.removesuffix(path.suffix): page._to_dict()})
        self._log([shown], [str(page._get_relative_file_path())])

    def artifact(self, name: str, path: Path) -> None:
        """Log a file as a version of the artifact of its name; it is new where the file differs."""
        digest, size = self._trackio.cas.stage_blob_into_project(path, self._project)
        self._trackio.SQLiteStorage.commit_artifact_version(
            project=self._project,
            name=re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII),
            type=KIND,
            description=None,
            manifest=[{"path": name, "digest": digest, "size": size}],
            metadata=None,
            aliases=None,
            run_name=self._name,
            run_id=self.id,
        )

    def close(self, state: str) -> None:
        """Do nothing: all is on the disk, and the state is one of the words."""

    def _log(self, points: Sequence[Point], names: Sequence[str]) -> None:
        """Write points, and the config; a point by a name that the run has is not written again."""
        self._trackio.SQLiteStorage.bulk_log(
            **self._run,
            metrics_list=[dict(point.values) for point in points],
            steps=[point.step for point in points],
            timestamps=[_moment(point.time_s) for point in points],
            log_ids=[f"{self.id}/{name}" for name in names],
            config=self._config,
        )


def begin(place: Place, options: Trackio) -> Sink:
    """Begin a run, or go on with it."""
    trackio, project = _imported(place.root, options), options.project or place.project
    trackio.SQLiteStorage.validate_project_name(project)
    return _Run(trackio, place, project)


def check(root: Path, project: str, options: Trackio) -> None:
    """Write in the folder, ask whether it takes the project's name, and read the database where there is one."""
    check_folder(root, options.folder, "tracking.trackio.folder")
    trackio, name = _imported(root, options), options.project or project
    trackio.SQLiteStorage.validate_project_name(name)
    trackio.SQLiteStorage.get_run_config(project=name, run_id="none")


def _imported(root: Path, options: Trackio) -> Any:
    """Return the package, which is imported here, since it then reads where its files are."""
    os.environ["TRACKIO_DIR"] = str(root / options.folder)
    for name in FETCHED_FROM:
        os.environ.pop(name, None)
    return importlib.import_module("trackio")


def _is_of_the_machine(point: Point) -> bool:
    return all(name.startswith(MACHINE) for name in point.values)


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat()
