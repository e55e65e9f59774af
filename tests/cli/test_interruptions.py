"""Ctrl-C, SIGTERM and kill -9 at a terminal: the exit code, what stays, and that the same command ends in the same bits."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import Terminated
from mltrainer.workspace import Project, is_locked, sha256_file
from tests.cli.conftest import contents, leftovers, start, train_until
from tests.conftest import succeed
from tests.projects import TASK, results, write_rings
from tests.waiting import until

EXPORT = ("checkpoints", "export", "baseline", "--format", "safetensors", "--to", "exported")


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """Send SIGINT to the whole group, as a terminal does."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.slow
def test_training_stopped_in_every_way_goes_on_to_the_same_bits(rings, tmp_path):
    project = Project(Path(shutil.copytree(rings / "planned", tmp_path / "rings")))
    before = contents(project.root)
    code, said = train_until(project, ctrl_c)
    assert (code, "stopped by SIGINT at step" in said, "the same command again" in said) == (130, True, True)
    code, said = train_until(project, subprocess.Popen.terminate)
    assert (code, "stopped by SIGTERM at step" in said, "Traceback" in said) == (143, True, False)
    assert train_until(project, subprocess.Popen.kill)[0] == -signal.SIGKILL
    (lock,) = project.runs_dir.glob("*/lock")
    until(lambda: not is_locked(lock), seconds=120)  # the tool has noticed that it is alone, has saved, and has ended
    (stopped,) = results(project).values()
    assert stopped["state"] == "interrupted"
    assert stopped["steps"] == max(row["step"] for row in stopped["checkpoints"])
    assert (contents(project.root), leftovers(project.root)) == (before, [])
    succeed("phase", "run", "baseline", "--project", project.root)
    (found,), (reference,) = results(project).values(), results(Project(rings / "trained")).values()
    assert [row["cause"] for row in found["interruptions"]] == ["SIGINT", "SIGTERM", "SIGTERM"]
    assert (found["weights_sha256"], found["chain"]) == (reference["weights_sha256"], reference["chain"])


@pytest.mark.slow
def test_ctrl_c_while_the_users_code_loads_its_data_is_not_lost(tmp_path):
    late = (
        "import pathlib, time\ntry:\n    pathlib.Path('importing').touch()\n    time.sleep(1)\nexcept BaseException:\n    pass\n"
    )
    project = write_rings(tmp_path, late + TASK)
    before = contents(project.root)
    with start(project, "run") as process:
        until((tmp_path / "importing").exists, seconds=120)
        ctrl_c(process)
        said = process.communicate()[1]
    assert (process.returncode, "Traceback" in said) == (130, False)
    (tmp_path / "importing").unlink()
    assert (contents(project.root), leftovers(project.root)) == (before, [])


@pytest.mark.slow
def test_an_interrupted_export_leaves_no_half_model_and_the_next_one_is_whole(rings, tmp_path):
    project = Project(Path(shutil.copytree(rings / "trained", tmp_path / "rings")))
    with start(project, *EXPORT) as process:
        until(lambda: any(path.stat().st_size for path in project.state_dir.glob("exports/*/lock")), seconds=120)
        ctrl_c(process)
        process.communicate()
    assert process.returncode == 130
    assert leftovers(project.root) == []
    with start(project, *EXPORT) as process:
        process.communicate()
    assert process.returncode == 0
    sums = dict(reversed(line.split("  ")) for line in (tmp_path / "rings/exported/SHA256SUMS").read_text().splitlines())
    assert "model.safetensors" in sums
    assert sums == {name: sha256_file(tmp_path / "rings/exported" / name) for name in sums}


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_stop_outside_of_any_tool_has_its_exit_code(tmp_path, cli, monkeypatch, stop, code):
    def derive(*_: Any) -> None:
        raise stop

    monkeypatch.setattr("mltrainer.cli.gates.derive", derive)
    said = cli("status", "--project", write_rings(tmp_path).root)
    assert said.code == code
    assert "type the same command again" in said.err


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_an_error_of_a_library_about_a_stop_is_no_fault_of_mltrainers(tmp_path, cli, monkeypatch, stop, code):
    def derive(*_: Any) -> None:
        try:
            raise stop
        except KeyboardInterrupt as error:
            raise ValueError("Error building a validator") from error

    monkeypatch.setattr("mltrainer.cli.gates.derive", derive)
    said = cli("status", "--project", write_rings(tmp_path).root, code=code)
    assert "fault" not in said.err


def test_what_a_killed_write_left_is_removed_by_the_next_run(tmp_path, cli):
    project = write_rings(tmp_path, "raise RuntimeError\n")
    project.phase_dir("planning").mkdir(parents=True)
    (project.phase_dir("planning") / ".tmp-abc").write_text("half a record")
    (project.phase_dir("finalization") / "final_model" / ".tmp-def").mkdir(parents=True)
    cli("phase", "run", "planning", "--set", "epochs=none", "--project", project.root)
    assert leftovers(project.root) == []
