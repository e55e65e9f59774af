"""Real trainings with real trackers: the same bits whatever a tracker does, and one run in the tracker for one run here."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.companions.trackers.sink import ADAPTERS
from mltrainer.workspace import Project, read_json
from tests.companions.trackers.offline import Offline
from tests.companions.trackers.sinks import break_tracker
from tests.companions.trackers.trackio_cli import trackio
from tests.conftest import shared, succeed
from tests.projects import evidence_of, results, write_rings
from tests.sample_programs import write_program
from tests.waiting import until

pytestmark = pytest.mark.slow

SLOW = {"use": "my_task:Rings", "options": {"pause": 0.05}}
TRACKING: dict[str, Any] = {"tensorboard": {"folder": "board"}, "mlflow": {}, "wandb": {}}
HAS_TRACKIO = ADAPTERS["trackio"].is_installed  # not beside the newest pillow: `make trackio-test`
if HAS_TRACKIO:
    TRACKING["trackio"] = {}
needs_trackio = pytest.mark.skipif(not HAS_TRACKIO, reason="trackio is not installed")


SENT = "*/tracking/tensorboard.json"


def interrupted(project: Project) -> None:
    """Train the baseline until a tracker has some of it, and press Ctrl-C."""
    command = [sys.executable, "-m", "mltrainer", "phase", "run", "baseline", "--project", str(project.root)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or any(read_json(path)["step"] for path in project.runs_dir.glob(SENT)), seconds=120)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def _train(folder: Path) -> None:
    folder.mkdir()
    project = write_rings(folder, tracking=TRACKING, task=SLOW)
    succeed("phase", "run", "planning", "--project", folder)
    interrupted(project)
    succeed("phase", "run", "baseline", "--project", folder)
    succeed("phase", "run", "diagnostics", "--project", folder)


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with all trackers on, whose baseline was interrupted and gone on with, up to diagnostics; not to be changed."""
    return Project(shared(tmp_path_factory, "tracked", _train))


@pytest.fixture
def result(tracked: Project) -> dict[str, Any]:
    (found,) = results(tracked).values()
    assert [row["cause"] for row in found["interruptions"]] == ["SIGINT"]
    return found


def steps(result: dict[str, Any]) -> list[int]:
    return list(range(1, result["steps"] + 1))


def accuracies(result: dict[str, Any]) -> list[tuple[int, float]]:
    return [(row["step"], pytest.approx(row["validation"]["accuracy"], rel=1e-5)) for row in result["history"]]


@pytest.mark.long
def test_tensorboard_has_one_run_whole(tracked, result):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = (tracked.root / "board").iterdir()
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    assert [row.step for row in found.Scalars("step/loss")] == steps(result)
    assert [(row.step, row.value) for row in found.Scalars("validation/accuracy")] == accuracies(result)
    assert found.Scalars("system/memory_mb")[0].value > 1
    tags = found.Tensors("tags")[-1].tensor_proto.string_val[0].decode()
    assert f"| weights_sha256 | {result['weights_sha256']} |" in tags
    assert "| gate.diagnostics | holds |" in tags
    assert (folder / "figures/phases/02_baseline/learning_curves.svg").is_file()


def test_a_program_is_shown_with_its_evaluations_and_without_what_nobody_knows(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    project = write_program(tmp_path)
    with open(tmp_path / "mltrainer.yaml", "a") as file:
        file.write("tracking: {tensorboard: {folder: board}}\n")
    for phase in ("planning", "baseline"):
        succeed("phase", "run", phase, "--project", tmp_path)
    (result,) = (found for found in results(project).values() if found["history"])
    found = EventAccumulator(str(next((tmp_path / "board").iterdir())), size_guidance={"scalars": 0})
    found.Reload()
    assert [row.step for row in found.Scalars("step/loss")] == steps(result)
    assert [(row.step, row.value) for row in found.Scalars("validation/accuracy")] == accuracies(result)
    assert not {"step/grad_norm", "samples_per_s"} & set(found.Tags()["scalars"])


@pytest.mark.filterwarnings("ignore")  # of MLflow's own making
def test_mlflow_has_one_run_whole(tracked, result):
    from mlflow.tracking import MlflowClient

    found = MlflowClient(f"sqlite:///{tracked.root}/.mltrainer/mlflow.db")
    (run,) = found.search_runs([found.get_experiment_by_name("rings").experiment_id])
    assert (run.info.run_name, run.info.status) == (f"baseline-{result['id']}", "FINISHED")
    assert run.data.params["optimizer.name"] == "adamw"
    assert run.data.tags["weights_sha256"] == result["weights_sha256"]
    assert run.data.tags["gate.diagnostics"] == "holds"
    assert [row.step for row in found.get_metric_history(run.info.run_id, "step/loss")] == steps(result)
    history = found.get_metric_history(run.info.run_id, "validation/accuracy")
    assert [(row.step, row.value) for row in history] == accuracies(result)
    paths = {file.path for file in found.list_artifacts(run.info.run_id, "phases/02_baseline")}
    assert {"phases/02_baseline/learning_curves.svg", "phases/02_baseline/baseline_results.md"} <= paths


def test_wandb_has_one_run_whole_offline(tracked, result):
    found = Offline(tracked.root / ".mltrainer/wandb")
    assert found.ids == {result["id"]}
    assert found.config["optimizer.name"] == "adamw"
    assert [step for step, _ in found.of("step/loss")] == steps(result)
    assert found.of("validation/accuracy") == accuracies(result)
    assert found.summary["weights_sha256"] == result["weights_sha256"]
    assert {"gate.diagnostics: holds", "state: finished"} <= set(found.tags)
    assert "phases/02_baseline/baseline_results.md" in found.files


@needs_trackio
def test_trackio_has_one_run_whole(tracked, result):
    run = f"baseline-{result['id']}"
    assert trackio(tracked, "list", "runs", "--project", "rings")["runs"] == [run]
    of_the_run = ("--project", "rings", "--run", run)
    config = trackio(tracked, "get", "run", *of_the_run)["config"]
    assert (config["optimizer.name"], config["weights_sha256"]) == ("adamw", result["weights_sha256"])
    assert (config["gate.diagnostics"], config["state"]) == ("holds", "finished")
    losses = trackio(tracked, "get", "metric", *of_the_run, "--metric", "step/loss")["values"]
    assert [row["step"] for row in losses] == steps(result)
    history = trackio(tracked, "get", "metric", *of_the_run, "--metric", "validation/accuracy")["values"]
    assert [(row["step"], row["value"]) for row in history] == accuracies(result)
    machine = trackio(tracked, "get", "system-metric", *of_the_run)["system_metrics"]
    assert machine[0]["system/memory_mb"] > 1
    names = {row["name"] for row in trackio(tracked, "list", "artifacts", "--project", "rings")["artifacts"]}
    assert "phases-02_baseline-baseline_results.md" in names
    assert "phases/02_baseline/learning_curves" in trackio(tracked, "list", "metrics", *of_the_run)["metrics"]


@pytest.mark.parametrize("tracker", ["tensorboard", pytest.param("trackio", marks=needs_trackio)])
@pytest.mark.parametrize("body", ["time.sleep(1000)", "os.kill(os.getpid(), 9)"], ids=["hangs", "dies"])
def test_a_tracker_that_hangs_or_dies_leaves_the_same_weights(cli, tmp_path, monkeypatch, result, tracker, body):
    folder = tmp_path / "project"
    folder.mkdir()
    project = write_rings(folder, tracking={tracker: {"wait_s": 1.0}}, task=SLOW)
    succeed("phase", "run", "planning", "--project", folder)
    break_tracker(tmp_path / "broken", monkeypatch, body, tracker)
    cli("phase", "run", "baseline", "--project", folder, code=0, err=f"{tracker} did not get everything: it")
    (found,) = results(project).values()
    assert (found["weights_sha256"], found["chain"]) == (result["weights_sha256"], result["chain"])
    assert found["interruptions"] == []


def test_a_run_has_the_same_name_and_bits_without_trackers(tmp_path, result):
    project = write_rings(tmp_path, task=SLOW)
    succeed("phase", "run", "planning", "--project", tmp_path)
    succeed("phase", "run", "baseline", "--project", tmp_path)
    (found,) = results(project).values()
    assert (found["id"], found["weights_sha256"]) == (result["id"], result["weights_sha256"])


def test_planning_tries_each_tracker_and_leaves_no_run_in_any(cli, tmp_path):
    project = write_rings(tmp_path, tracking={"tensorboard": {"folder": "mltrainer.yaml/board"}, "wandb": {}})
    said = cli("phase", "run", "planning", "--project", tmp_path, code=0)
    rows = evidence_of(project, "planning")["trackers"]
    assert [(row["name"], row["state"]) for row in rows] == [("tensorboard", "failed"), ("wandb", "ready")]
    sentence = "tensorboard would show nothing: tracking.tensorboard.folder: the folder mltrainer.yaml/board cannot be written"
    assert sentence in said.err
    report = (project.phase_dir("planning") / "reproducibility_manifest.md").read_text()
    assert f"warning: {sentence}" in report
    assert "wandb: tried, a run can be begun there." in report
    assert not (project.state_dir / "wandb").exists()
