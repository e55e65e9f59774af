"""One table of a study, whichever engine trained it, and whatever was taken away meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from mltrainer.workspace import digest, read_json
from tests.executors.engines import NO_SLURM, kill_tree, slurm_is_here, supervisors
from tests.projects import write_rings
from tests.search.test_program import SPACE, run, start, study, table

pytestmark = [pytest.mark.slow, pytest.mark.long]
TASK = {"use": "my_task:Rings", "options": {"n": 60, "pause": 0.05}}
INFRASTRUCTURE = ("lost", "job", "machine", "signal", "node", "process")


def job(**changes: Any) -> dict[str, Any]:
    asked = {**study(SPACE, 6, epochs=4, task=TASK), "strategy": "tpe", "lag": 2, "seeds": 1, "workers": 2}
    return {**asked, **changes}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of this machine's workers, one at a time."""
    return told(run(write_rings(tmp_path_factory.mktemp("local")).root, job(workers=1))[2])


def told(found: dict[str, Any]) -> str:
    assert not [trial for trial in found["trials"] if trial["state"] == "failed" or trial["reason"]]
    return digest([table(found), found["comparison"]])


def disturbed(root: Path, asked: dict[str, Any], disturb: Callable[[Path], Any]) -> tuple[str, str]:
    """Run a study that is disturbed once a trial has a checkpoint; return its table's digest and what was said."""
    process = start(root, asked)
    while not list(root.glob(".mltrainer/*/*/**/checkpoints/step-*")):
        assert process.poll() is None, process.stdout and process.stdout.read().decode()
        time.sleep(0.05)
    disturb(root)
    said, _ = process.communicate()
    assert process.returncode == 0, said.decode()
    assert not list(root.glob(".mltrainer/attempts/*"))
    return told(read_json(root / asked["folder"] / "result.json")), said.decode()


def worker_of(supervisor: int) -> int:
    """Return the worker of a supervisor."""
    return int(psutil.Process(supervisor).children()[0].pid)


def cancel_a_job(root: Path) -> None:
    newest = max(root.glob(".mltrainer/attempts/*/*/begun.json"), key=lambda path: path.stat().st_mtime)
    subprocess.run(["scancel", json.loads(newest.read_text())["job"]], check=True)


def kill_a_machine(root: Path) -> None:
    kill_tree(supervisors(root)[0], signal.SIGKILL)


def kill_a_worker(root: Path) -> None:
    os.kill(worker_of(supervisors(root)[0]), signal.SIGKILL)


def freeze_a_worker(root: Path) -> None:
    os.kill(worker_of(supervisors(root)[0]), signal.SIGSTOP)


@pytest.mark.skipif(not slurm_is_here(), reason=NO_SLURM)
@pytest.mark.parametrize("disturb", [lambda _: None, cancel_a_job, kill_a_machine, kill_a_worker, freeze_a_worker])
def test_slurm_gives_the_table_of_this_machine(tmp_path: Path, expected: str, disturb: Callable[[Path], Any]) -> None:
    root = write_rings(tmp_path).root
    found, said = disturbed(root, job(engine="slurm", silent_minutes=0.2), disturb)
    assert found == expected
    assert ("was lost" in said) == (disturb in (cancel_a_job, kill_a_machine))


@pytest.mark.skipif(not slurm_is_here(), reason=NO_SLURM)
def test_a_search_that_is_stopped_on_slurm_goes_on_here(tmp_path: Path, expected: str) -> None:
    root = write_rings(tmp_path).root
    process = start(root, job(engine="slurm"))
    while not list(root.glob(".mltrainer/attempts/**/checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130, said.decode()
    assert supervisors(root) == []
    assert list(root.glob(".mltrainer/runs/*/checkpoints/step-*"))
    assert told(run(root, job())[2]) == expected
