"""Trackers in processes of their own: what they could not do is told, and nobody waits for them longer than agreed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.beside import Beside
from mltrainer.companions.trackers.feed import MOST
from mltrainer.companions.trackers.sink import ADAPTERS, Adapter
from mltrainer.configs.tracking import TensorBoard, Tracking
from mltrainer.workspace import Project, locked
from tests.companions.monitor.invented import Training, empty_project
from tests.companions.trackers.sinks import break_tracker
from tests.waiting import until

Heard = list[dict[str, Any]]


def beside(project: Project, heard: Heard, wait_s: float = 20.0) -> Beside:
    return Beside(project, "baseline", Tracking(tensorboard=TensorBoard(wait_s=wait_s)), heard.append)


def notes(heard: Heard) -> list[str]:
    return [event["text"] for event in heard if event["event"] == "note"]


def events_of(project: Project) -> list[Path]:
    return list(project.root.glob(".mltrainer/tensorboard/*/events*"))


@pytest.mark.slow
def test_events_pass_and_a_tracker_that_works_says_nothing(tmp_path):
    project, heard = empty_project(tmp_path), Heard()
    training = Training(project, name="invented")
    with beside(project, heard) as trackers:
        trackers.tell({"event": "progress", "step": 1})
        training.epoch(0.5)
        until(lambda: (training.folder / "tracking/tensorboard.json").exists())
    assert heard == [{"event": "progress", "step": 1}]
    assert json.loads((training.folder / "tracking/tensorboard.json").read_text())["step"] == 20
    assert len(events_of(project)) == 1


def test_who_names_no_tracker_starts_nothing(tmp_path):
    project, heard = empty_project(tmp_path), Heard()
    with Beside(project, "baseline", None, heard.append):
        pass
    assert heard == []
    assert not project.state_dir.exists()


def test_a_package_that_is_not_installed_is_told_with_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(ADAPTERS, "tensorboard", Adapter("mltrainer.companions.trackers.sinks.tensorboard", "no_such_package"))
    heard = Heard()
    with beside(empty_project(tmp_path), heard):
        pass
    assert notes(heard) == ["tensorboard is not installed, so that it shows nothing: pip install 'mltrainer[tensorboard]'"]


@pytest.mark.slow
def test_a_tracker_that_dies_is_told_at_the_next_event_and_once(tmp_path, monkeypatch):
    project, heard = empty_project(tmp_path), Heard()
    Training(project, name="invented").epoch(0.5)
    break_tracker(tmp_path / "broken", monkeypatch, "os.kill(os.getpid(), 9)")
    with beside(project, heard) as trackers:
        until(lambda: trackers.tell({"event": "progress"}) or notes(heard))
        trackers.tell({"event": "progress"})
    assert len(notes(heard)) == 1
    assert "its process ended with signal 9; the training is not affected" in notes(heard)[0]


@pytest.mark.slow
def test_a_tracker_that_fails_is_told_with_its_reason_but_no_secret(tmp_path, monkeypatch):
    project, heard = empty_project(tmp_path), Heard()
    Training(project, name="invented").epoch(0.5)
    secret = "hunter2-Zx81kQ9w"
    monkeypatch.setenv("TRACKER_API_KEY", secret)
    break_tracker(tmp_path / "broken", monkeypatch, f"raise OSError('no answer from https://me:{secret}@host')")
    with beside(project, heard):
        pass
    (note,) = notes(heard)
    assert "OSError: no answer from https://me:[removed" in note
    log = project.state_dir / "trackers/tensorboard.log"
    assert "Traceback" in log.read_text()
    assert secret not in note + log.read_text()
    assert project.relative(log) in note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("time.sleep(1000)", "it did not answer for 1 s; run 0123456789ab: step 0 of 2000"),
        ("time.sleep(0.8) or kept(self)", "it did not take the rest within 1 s"),
    ],
)
def test_a_tracker_that_hangs_or_is_slow_is_ended(tmp_path, monkeypatch, body, why):
    project, heard = empty_project(tmp_path), Heard()
    Training(project, name="invented").steps(*[0.5] * 4 * MOST)
    break_tracker(tmp_path / "broken", monkeypatch, f"kept(self) if len(calls) < 4 else {body}")
    with beside(project, heard, wait_s=1.0):
        until(lambda: events_of(project))
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    assert why in notes(heard)[0]


@pytest.mark.slow
def test_a_tracker_that_lets_no_other_thread_run_is_killed(tmp_path, monkeypatch):
    project, heard = empty_project(tmp_path), Heard()
    Training(project, name="invented").epoch(0.5)
    keeps_the_lock = "__import__('ctypes').PyDLL(None).sleep(1000)"  # that of the interpreter
    body = f"kept(self) if len(calls) < 2 else {keeps_the_lock}"
    break_tracker(tmp_path / "broken", monkeypatch, body)
    with beside(project, heard, wait_s=0.5):
        until(lambda: events_of(project))
        begun = time.monotonic()
    assert time.monotonic() - begun < 5
    assert "signal 9" in notes(heard)[0]


@pytest.mark.slow
def test_the_next_phases_tracker_goes_on_where_one_was_killed(tmp_path, monkeypatch):
    project, heard = empty_project(tmp_path), Heard()
    training = Training(project, name="invented")
    training.epoch(0.5)
    with monkeypatch.context() as here:
        break_tracker(tmp_path / "broken", here, "kept(self) if len(calls) < 4 else os._exit(9)")
        with beside(project, heard) as trackers:
            until(lambda: trackers.tell({"event": "progress"}) or notes(heard))
    training.epoch(0.75)
    (training.folder / "job.json").touch()  # as who goes on with it does
    with beside(project, heard):
        pass
    assert len(notes(heard)) == 1
    assert json.loads((training.folder / "tracking/tensorboard.json").read_text())["step"] == 40
    assert len({path.parent for path in events_of(project)}) == 1


@pytest.mark.slow
def test_a_tracker_whose_workflow_was_killed_ends_by_itself_and_the_next_one_waits(tmp_path):
    project, heard = empty_project(tmp_path), Heard()
    training = Training(project, name="invented")
    training.epoch(0.5)
    with locked(project.state_dir / "trackers/tensorboard.lock", "an earlier one"):
        trackers = beside(project, heard)
        trackers.__enter__()
        time.sleep(1)
        assert events_of(project) == []
    (process,) = trackers._processes
    process.running.close_input()  # as the kernel does for who is killed
    assert process.running.wait(20) == 0
    assert json.loads((training.folder / "tracking/tensorboard.json").read_text())["step"] == 20
    trackers.tell({"event": "progress"})
    assert notes(heard) == []
