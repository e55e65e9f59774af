"""Planning tries the trackers: what would show nothing is told before anything is trained, and nothing is left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers import process
from mltrainer.companions.trackers.folders import check_folder
from mltrainer.companions.trackers.sanity_check import Rehearsal
from mltrainer.companions.trackers.sink import ADAPTERS, Adapter
from mltrainer.configs.tracking import TensorBoard, Tracking
from mltrainer.records.planning import Tracker
from tests.companions.monitor.invented import empty_project

HANGS = """
import sys
if "mltrainer.companions.trackers.program" in sys.orig_argv:
    import os, tempfile, time
    tempfile.NamedTemporaryFile = lambda **_: {body}
"""


def tried(root: Path, **options: Any) -> tuple[Tracker, list[str]]:
    """Return the row of TensorBoard, tried in a project, and the notes."""
    heard: list[dict[str, Any]] = []
    with Rehearsal(empty_project(root), heard.append) as rehearsal:
        (row,) = rehearsal.begin(Tracking(tensorboard=TensorBoard(**{"wait_s": 20, **options})))()
    return row, [event["text"] for event in heard]


def test_a_tracker_that_works_is_ready_and_shows_nothing(tmp_path):
    row, notes = tried(tmp_path, folder="deep/board")
    assert row == Tracker(name="tensorboard", state="ready", reason=None, mend=None)
    assert notes == []
    assert not (tmp_path / "deep").exists()


@pytest.mark.slow
def test_a_file_where_the_folder_should_be_is_told_with_what_to_do_next(tmp_path):
    row, (note,) = tried(tmp_path, folder="mltrainer.yaml/board")
    assert row.state == "failed"
    assert row.reason == "tracking.tensorboard.folder: the folder mltrainer.yaml/board cannot be written: Not a directory"
    assert row.mend.endswith("tracking.tensorboard.folder in mltrainer.yaml, then mltrainer phase run planning")
    assert note == f"tensorboard would show nothing: {row.reason}; the training is not affected; next: {row.mend}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "why"),
    [("time.sleep(1000)", "it did not answer within 4 s"), ("os.kill(os.getpid(), 9)", "its process ended with signal 9")],
)
def test_who_hangs_or_dies_is_waited_for_as_long_as_agreed(tmp_path, monkeypatch, body, why):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/sitecustomize.py").write_text(HANGS.format(body=body), "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    row, _ = tried(tmp_path, wait_s=4)
    assert (row.state, row.reason) == ("failed", why)
    places = "in mltrainer.yaml, or in phases/01_planning/training_config.yaml where it was changed there or by --set"
    assert row.mend == f"fix `tracking.tensorboard` {places}, or take it out, then mltrainer phase run planning"


def test_who_is_killed_after_the_time_agreed_is_told_to_be_late(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "GRACE_S", 0.0)
    row, _ = tried(tmp_path, wait_s=0.05)  # before its interpreter has begun
    assert (row.state, row.reason) == ("failed", "it did not answer within 0.05 s")


def test_planning_that_fails_waits_for_nobody(tmp_path):
    heard: list[dict[str, Any]] = []
    begun = time.monotonic()
    with Rehearsal(empty_project(tmp_path), heard.append) as rehearsal:  # left without waiting
        rehearsal.begin(Tracking(tensorboard=TensorBoard(wait_s=600)))
        (begun_one,) = rehearsal._processes
    assert time.monotonic() - begun < 2
    assert begun_one.running.poll() == -9
    assert heard == []


def test_a_package_that_is_not_installed_has_a_row_too(tmp_path, monkeypatch):
    monkeypatch.setitem(ADAPTERS, "tensorboard", Adapter("mltrainer.companions.trackers.sinks.tensorboard", "no_such_package"))
    row, notes = tried(tmp_path)
    way = "pip install 'mltrainer[tensorboard]'"
    assert row == Tracker(name="tensorboard", state="not_installed", reason="tensorboard is not installed", mend=way)
    assert notes == [f"tensorboard is not installed, so that it shows nothing: {way}"]


def test_no_tracker_has_no_row(tmp_path):
    with Rehearsal(empty_project(tmp_path), lambda _: None) as rehearsal:
        assert rehearsal.begin(None)() == []


def test_trying_a_folder_that_holds_files_leaves_them_alone(tmp_path):
    (tmp_path / "board").mkdir()
    (tmp_path / "board/mine").write_text("kept")
    check_folder(tmp_path, "board", "tracking.tensorboard.folder")
    assert [path.name for path in (tmp_path / "board").iterdir()] == ["mine"]
