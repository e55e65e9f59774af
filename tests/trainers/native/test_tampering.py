"""What changes between an interruption and the same command again is refused by name, or passed over aloud; never accepted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.records.planning import Environment
from mltrainer.reproducibility.environment import capture
from mltrainer.workspace import Project
from tests.conftest import Cli
from tests.projects import TASK, results, write_rings

SOURCE = TASK.replace("default_rng(7)", "default_rng(int(__import__('pathlib').Path('data.txt').read_text()))")
PLAN = ("epochs=3", "batch_size=32", "early_stopping=null", "checkpoint.every_n_epochs=1")
STOPPED = "mltrainer.trainers.native.job.StopSignals"


def after(steps: int) -> Callable[[], str | None]:
    """Return what asks for a stop after so many steps of a process."""
    left = iter([None] * (steps - 1))
    return lambda: next(left, "SIGINT")


@pytest.fixture
def stopped(
    tools_here: None, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A project whose baseline was stopped in its second epoch: two checkpoints; made once, copied for each test."""
    made = tmp_path_factory.getbasetemp() / "stopped"
    if not made.exists():
        (made / "p").mkdir(parents=True)
        (made / "p/data.txt").write_text("7")
        root = write_rings(made / "p", SOURCE).root
        cli("phase", "run", "planning", *[a for kv in PLAN for a in ("--set", kv)], "--project", root, code=0)
        with monkeypatch.context() as here:
            here.setattr(STOPPED, lambda events: after(10))
            cli("phase", "run", "baseline", "--project", root, code=130)
    return Project(Path(shutil.copytree(made / "p", tmp_path / "p", symlinks=True)))


def again(project: Project, cli: Cli) -> Any:
    return cli("phase", "run", "baseline", "--project", project.root)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def file_of(project: Project, pattern: str) -> Path:
    return max(project.runs_dir.glob(pattern))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "manifest.json"])
def test_a_damaged_newest_checkpoint_is_passed_over_aloud(stopped, cli, name):
    newest = file_of(stopped, "*/checkpoints/step-*")
    (path,) = [p for p in newest.iterdir() if p.name == name] or [sorted(newest.iterdir())[0]]
    flip(path)
    said = again(stopped, cli)
    assert said.code == 0, said.out + said.err
    assert f"passed over a damaged checkpoint, {newest.name}" in said.err
    (result,) = results(stopped).values()
    assert result["interruptions"][-1]["step"] < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain.txt", "gradients.f32", "ledger.txt"])
@pytest.mark.parametrize("change", [flip, Path.unlink], ids=["a bit", "gone"])
def test_a_changed_record_of_the_steps_is_refused(stopped, cli, name, change):
    change(file_of(stopped, f"*/{name}"))
    said = again(stopped, cli)
    assert (said.code, name in said.err) == (4, True), said.err


@pytest.mark.parametrize(
    ("path", "old", "new", "named"),
    [
        ("phases/01_planning/training_config.yaml", "lr: ", "lr: 1", "training_config.yaml"),
        ("my_task.py", "0.3", "0.4", "my_task.py"),
        ("data.txt", "7", "8", "data"),
    ],
)
def test_a_changed_config_code_or_data_is_refused(stopped, cli, path, old, new, named):
    file = stopped.root / path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    said = again(stopped, cli)
    assert (said.code != 0, named in said.err) == (True, True), said.err


@pytest.mark.slow
def test_another_version_of_a_package_is_refused(stopped, cli, monkeypatch):
    def other(*arguments: Any) -> Any:
        return Environment.model_validate_json(capture(*arguments).model_dump_json().replace(np.__version__, "0.0.1"))

    monkeypatch.setattr("mltrainer.runs.contract.capture", other)
    said = again(stopped, cli)
    assert (said.code != 0, "numpy" in said.err, "0.0.1" in said.err) == (True, True, True), said.err


def test_another_numerics_class_is_refused(stopped, cli, monkeypatch):
    monkeypatch.setattr("mltrainer.trainers.native.session.numerics_class", lambda device: "other")
    said = again(stopped, cli)
    assert (said.code, "numerics_class" in said.err) == (4, True), said.err


@pytest.mark.slow
@pytest.mark.parametrize("change", [flip, Path.unlink], ids=["a bit", "gone"])
def test_a_finished_run_whose_ledger_was_changed_is_no_evidence(stopped, cli, change):
    again(stopped, cli)
    (run,) = results(stopped)
    change(file_of(stopped, "*/ledger.txt"))
    said = again(stopped, cli)
    assert f"run {run} has changed on disk" in said.err, said
