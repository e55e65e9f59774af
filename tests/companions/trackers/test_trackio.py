"""What Trackio's own command finds in its folder."""

from __future__ import annotations

import hashlib
import math
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.beside import Beside
from mltrainer.companions.trackers.sink import Place, Point
from mltrainer.configs.tracking import Tracking, Trackio
from mltrainer.workspace import Project
from tests.companions.monitor.invented import Training, empty_project
from tests.companions.trackers.sinks import break_tracker
from tests.companions.trackers.trackio_cli import trackio

pytest.importorskip("trackio", reason="it asks for an older pillow than the one pinned: `make trackio-test`")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Trackio's own making

RUN = "0123456789ab"
OF_THE_RUN = ("--project", "invented", "--run", f"baseline-{RUN}")


@pytest.fixture(autouse=True)
def _as_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", "elsewhere")  # what a user may have set; and put back after each test
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)


def begin(root: Path, known: str | None = None, step: int = 0, name: str = "invented", **options: Any) -> Any:
    from mltrainer.companions.trackers.sinks import trackio as sink

    return sink.begin(Place(root, name, RUN, "baseline", known, step), Trackio(**options))


def losses(project: Project) -> list[tuple[int, float]]:
    found = trackio(project, "get", "metric", *OF_THE_RUN, "--metric", "step/loss")
    return [(row["step"], row["value"]) for row in found["values"]]


def test_its_command_finds_all_that_it_was_given_and_one_run_for_who_goes_on(tmp_path):
    project = empty_project(tmp_path)
    curve = tmp_path / "curve.svg"
    curve.write_text("<svg/>")
    run = begin(tmp_path)
    run.params({"optimizer.lr": 0.1, "compile": False})
    run.metrics([Point(nr, 1e9 + nr, {"step/loss": 1 / nr, "step/grad_norm": 2.0}) for nr in range(1, 501)])
    run.metrics([Point(20, 1e9, {"epoch": 1.0, "validation/accuracy": 0.5}), Point(500, 1e9 + 1, {"system/memory_mb": 77.5})])
    run.tags({"gate.baseline": "does not hold: no_nan", "state": "running"})
    run.close("interrupted")
    again = begin(tmp_path, known=run.id, step=500)
    again.metrics([Point(501, 2e9, {"step/loss": math.nan})])
    again.tags({"gate.baseline": "holds"})
    again.figure("phases/02_baseline/curve.svg", curve)
    again.close("finished")
    assert trackio(project, "list", "runs", "--project", "invented")["runs"] == [f"baseline-{RUN}"]
    found = losses(project)
    assert [step for step, _ in found] == list(range(1, 502))
    assert found[1] == (2, 0.5)
    assert math.isnan(found[-1][1])
    config = trackio(project, "get", "run", *OF_THE_RUN)["config"]
    assert (config["optimizer.lr"], config["compile"], config["gate.baseline"]) == (0.1, False, "holds")
    at_20 = trackio(project, "get", "snapshot", *OF_THE_RUN, "--step", "20")["metrics"]
    assert at_20["validation/accuracy"][0]["value"] == 0.5
    (machine,) = trackio(project, "get", "system-metric", *OF_THE_RUN)["system_metrics"]
    assert machine == {"system/memory_mb": 77.5, "timestamp": "2001-09-09T01:46:41+00:00"}
    by_step = {"epoch", "phases/02_baseline/curve", "step/grad_norm", "step/loss", "validation/accuracy"}
    assert set(trackio(project, "list", "metrics", *OF_THE_RUN)["metrics"]) == by_step
    at_the_end = trackio(project, "get", "snapshot", *OF_THE_RUN, "--step", "501")["metrics"]
    page = at_the_end["phases/02_baseline/curve"][0]["value"]["file_path"]
    assert "<svg/>" in (tmp_path / ".mltrainer/trackio/media" / page).read_text()
    assert {path.name for path in tmp_path.iterdir()} == {".mltrainer", "curve.svg", "mltrainer.yaml"}


def test_a_file_is_an_artifact_with_a_version_for_each_content(tmp_path):
    project, report = empty_project(tmp_path), tmp_path / "report.md"
    run = begin(tmp_path)
    run.tags({"state": "running"})
    for text in ("first", "second", "second"):
        report.write_text(text)
        run.artifact("phases/02_baseline/my report.md", report)
    name = "phases-02_baseline-my-report.md"
    (listed,) = trackio(project, "list", "artifacts", "--project", "invented")["artifacts"]
    assert (listed["name"], listed["num_versions"]) == (name, 2)
    latest = trackio(project, "get", "artifact", "--project", "invented", "--name", name)
    digest = hashlib.sha256(b"second").hexdigest()
    assert latest["manifest"] == [{"path": "phases/02_baseline/my report.md", "digest": digest, "size": 6}]
    assert latest["producer_run_name"] == f"baseline-{RUN}"


def test_what_was_given_is_on_the_disk_at_once_and_once_though_it_comes_twice(tmp_path):
    project, run = empty_project(tmp_path), begin(tmp_path)
    points = [Point(1, 1e9, {"step/loss": 1.0}), Point(1, 1e9, {"epoch": 1.0}), Point(2, 1e9, {"step/loss": 0.5})]
    run.metrics(points)
    begin(tmp_path, known=None).metrics(points)  # as who goes on where one was killed before it noted what it had sent
    assert losses(project) == [(1, 1.0), (2, 0.5)]


@pytest.mark.parametrize("writes", [1, 5, 7])
def test_where_one_was_killed_the_next_goes_on_and_nothing_is_missing_or_twice(tmp_path, monkeypatch, writes):
    project, heard = empty_project(tmp_path), list[dict[str, Any]]()
    training = Training(project, name="invented")
    training.epoch(0.5)
    with monkeypatch.context() as here:
        dies = f"return kept(self, *given, **named) if len(calls) <= {writes} else os.kill(os.getpid(), 9)"
        break_tracker(tmp_path / "broken", here, dies, "trackio")
        with Beside(project, "baseline", Tracking(trackio=Trackio()), heard.append):
            pass
    training.epoch(0.75)
    (training.folder / "job.json").touch()  # as who goes on with it does
    with Beside(project, "baseline", Tracking(trackio=Trackio()), heard.append):
        pass
    assert ["signal 9" in event["text"] for event in heard] == [True]
    assert trackio(project, "list", "runs", "--project", "invented")["runs"] == [f"baseline-{RUN}"]
    assert losses(project) == [(nr, 0.5 if nr <= 20 else 0.25) for nr in range(1, 41)]
    assert trackio(project, "get", "run", *OF_THE_RUN)["config"]["name"] == "invented"


def test_nothing_leaves_the_machine_whatever_the_environment_says(tmp_path, monkeypatch):
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID", "SPACE_REPO_NAME"):
        monkeypatch.setenv(name, "somebody/something")
    monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 34)
    asked: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name, **_: asked.append(name) or [])
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: asked.append(address))
    project, run = empty_project(tmp_path), begin(tmp_path)
    run.metrics([Point(1, 1e9, {"step/loss": 1.0})])
    run.close("finished")
    assert asked == []
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name)  # its command would read there
    assert losses(project) == [(1, 1.0)]


def test_a_name_that_trackio_keeps_for_itself_is_told_and_another_may_be_given(tmp_path):
    project = empty_project(tmp_path)
    with pytest.raises(ValueError, match="Project name 'my_system' is not allowed"):
        begin(tmp_path, name="my_system")
    begin(tmp_path, name="my_system", project="mine").tags({"state": "running"})
    assert trackio(project, "list", "projects")["projects"] == ["mine"]


def test_the_check_leaves_no_project_and_finds_what_would_take_no_run(tmp_path):
    from mltrainer.companions.trackers.sinks import trackio as sink
    from mltrainer.errors import InputError

    sink.check(tmp_path, "invented", Trackio())
    assert list(tmp_path.rglob("*.db")) == []
    with pytest.raises(ValueError, match="Project name 'my_system' is not allowed"):
        sink.check(tmp_path, "my_system", Trackio())
    (tmp_path / "file").write_text("where the folder should be")
    with pytest.raises(InputError, match=r"tracking.trackio.folder: the folder file cannot be written"):
        sink.check(tmp_path, "invented", Trackio(folder="file"))


def test_the_check_finds_a_database_that_is_none(tmp_path):
    from mltrainer.companions.trackers.sinks import trackio as sink

    folder = tmp_path / ".mltrainer/trackio"
    folder.mkdir(parents=True)
    (folder / "invented.db").write_text("no database, but a text that is longer than the header of one" * 20)
    with pytest.raises(Exception, match="not a database"):
        sink.check(tmp_path, "invented", Trackio())
