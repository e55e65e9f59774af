"""The same bits whatever should not matter: interruptions, workers, validation cadence, checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.tools.mark import new_mark
from mltrainer.workspace import digest, read_json, write_json
from tests.projects import PROJECT, TASK, write_rings

pytestmark = pytest.mark.slow  # each training is a process of its own, which imports torch
BASE = {
    **PROJECT,
    "epochs": 4,
    "batch_size": 16,
    "accumulate": 2,
    "optimizer": {"name": "adamw", "lr": 0.01},
    "schedule": {"name": "cosine", "warmup_epochs": 1},
    "checkpoint": {"every_n_epochs": 1, "save_best": True, "save_last": True, "keep": 2},
}


def job(root: Path, name: str = "run", **changes: Any) -> dict[str, Any]:
    config = TrainingConfig.model_validate({**BASE, **changes}).model_dump()
    return {
        "schema": 1,
        "run": name,
        "phase": "test",
        "purpose": "train",
        "folder": f".mltrainer/runs/{name}",
        "config": config,
        "contract": {"config_sha256": digest(config), "code_sha256": "0", "environment_sha256": "0"},
        "threads": 1,
    }


def start(root: Path, work: dict[str, Any]) -> subprocess.Popen[bytes]:
    path = root / work["folder"] / "job.json"
    launch, mark = new_mark()
    write_json(path, {**work, "launch": launch})
    command = [sys.executable, "-m", "mltrainer.tools.trainer", str(path)]
    return subprocess.Popen(command, cwd=root, env={**os.environ, **mark}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(root: Path, work: dict[str, Any]) -> dict[str, Any]:
    process = start(root, work)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return dict(read_json(root / work["folder"] / "result.json"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = write_rings(tmp_path_factory.mktemp("reference")).root
    return finish(root, job(root))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["weights_sha256"] == other["weights_sha256"])


def test_a_fresh_process_gives_the_same_chain(tmp_path, reference):
    root = write_rings(tmp_path).root
    again = finish(root, job(root))
    assert same(again, reference)
    assert again["chain"] == reference["chain"]
    assert [row["validation"] for row in again["history"]] == [row["validation"] for row in reference["history"]]


@pytest.mark.parametrize(
    "change",
    [
        {"loader": {"workers": 2}},
        {"evaluate": {"every_n_steps": 3}},
        {"evaluate": {"every_n_epochs": 4}},
        {"checkpoint": {"every_n_epochs": 4, "save_best": False, "save_last": True, "keep": 0}},
    ],
    ids=["workers", "validation more often", "validation less often", "checkpoints rarely"],
)
def test_what_should_not_matter_does_not(tmp_path, reference, change):
    root = write_rings(tmp_path).root
    assert same(finish(root, job(root, **change)), reference)


@pytest.mark.parametrize("change", [{"seed": 43}, {"batch_size": 8}, {"optimizer": {"name": "adamw", "lr": 0.011}}])
def test_what_should_matter_does(tmp_path, reference, change):
    root = write_rings(tmp_path).root
    assert not same(finish(root, job(root, **change)), reference)


def interrupt(root: Path, work: dict[str, Any], number: int, after_s: float) -> int:
    """Start a run, wait until it trains, and send it a signal a moment later; return the exit code."""
    process = start(root, work)
    chain = root / work["folder"] / "chain.txt"
    size = chain.stat().st_size if chain.exists() else 0
    while process.poll() is None and (not chain.exists() or chain.stat().st_size == size):
        time.sleep(0.01)
    time.sleep(after_s)
    process.send_signal(number)
    process.communicate()
    return int(process.returncode)


def test_sigint_saves_and_the_same_command_goes_on(tmp_path):
    root = write_rings(tmp_path, task={"use": "my_task:Rings", "options": {"pause": 0.01}}).root
    work = job(root, task={"use": "my_task:Rings", "options": {"pause": 0.01}})
    assert interrupt(root, work, signal.SIGINT, 0.2) == 130
    stopped = read_json(root / work["folder"] / "result.json")
    assert stopped["state"] == "interrupted"
    assert 0 < stopped["steps"] < stopped["planned_steps"]
    resumed = finish(root, work)
    assert resumed["interruptions"] == [{"step": stopped["steps"], "cause": "SIGINT"}]
    assert 0 < resumed["earlier_s"] <= stopped["wall_s"]
    assert resumed["wall_s"] == pytest.approx(resumed["earlier_s"] + sum(resumed["time_s"].values()))
    fresh = finish(write_rings(tmp_path / "fresh").root, work)
    assert resumed["chain"] == fresh["chain"]


SIGTERM = {
    "evaluation": ("    def metrics(self, outputs, targets):\n", "        term()\n"),
    "start": ("    def model(self):\n", "        term()\n"),
    "compile": ("    def model(self):\n", "        import threading\n        threading.Timer(1.5, term).start()\n"),
}
TERM = """
import os, signal
from pathlib import Path


def term():
    if not (asked := Path("asked")).exists():
        asked.touch()
        os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("moment", ["evaluation", "start", pytest.param("compile", marks=pytest.mark.long)])
def test_sigterm_is_heard_while_nothing_is_trained(tmp_path, moment):
    place, line = SIGTERM[moment]
    root = write_rings(tmp_path, TERM + TASK.replace(place, place + line)).root
    changes = {"compile": True, "epochs": 1} if moment == "compile" else {}
    work = job(root, **changes)
    stopped = start(root, work)
    _, errors = stopped.communicate()
    assert stopped.returncode == 143, errors.decode()
    assert (root / "asked").exists()
    resumed = finish(root, work)
    assert resumed["state"] == "finished"
    fresh = write_rings(tmp_path / "fresh").root
    assert resumed["chain"] == finish(fresh, job(fresh, **changes))["chain"]


def test_a_run_killed_in_mid_epoch_goes_on_from_the_newest_step_that_was_saved(tmp_path):
    task = {"use": "my_task:Rings", "options": {"pause": 0.01}}
    policy = {"every_n_epochs": 100, "every_n_steps": 1, "save_best": False, "save_last": True, "keep": 0}
    root = write_rings(tmp_path, task=task).root
    work = job(root, task=task, checkpoint=policy)
    process = start(root, work)
    while process.poll() is None and not [*(root / work["folder"]).glob("checkpoints/step-*[123456789]")]:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    resumed = finish(root, work)
    (stop,) = resumed["interruptions"]
    assert (stop["cause"], stop["step"] > 0) == ("killed", True)
    fresh = finish(write_rings(tmp_path / "fresh").root, job(root, task=task))
    assert (resumed["chain"], resumed["weights_sha256"]) == (fresh["chain"], fresh["weights_sha256"])


def test_a_changed_contract_is_refused_field_by_field(tmp_path):
    root = write_rings(tmp_path).root
    work = job(root)
    finish(root, work)
    (root / work["folder"] / "result.json").unlink()
    process = start(root, {**work, "contract": {**work["contract"], "config_sha256": "other"}})
    process.communicate()
    assert process.returncode == 4


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path, reference):
    root = write_rings(tmp_path).root
    work = job(root)
    finish(root, work)
    newest = max((root / work["folder"] / "checkpoints").glob("step-*"))
    state = newest / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    assert same(finish(root, work), reference)


def test_when_every_checkpoint_is_damaged_nothing_starts_from_scratch(tmp_path):
    root = write_rings(tmp_path).root
    work = job(root)
    finish(root, work)
    for state in (root / work["folder"] / "checkpoints").glob("*/state.safetensors"):
        state.write_bytes(b"")
    process = start(root, work)
    process.communicate()
    assert process.returncode == 4


def test_nan_stops_the_run_and_names_step_and_samples(tmp_path):
    healthy = "return nn.functional.cross_entropy(outputs, targets)"
    broken = f"self.calls = getattr(self, 'calls', 0) + 1\n        {healthy} * (float('nan') if self.calls > 20 else 1)"
    write_rings(tmp_path, TASK.replace(healthy, broken))
    result = finish(tmp_path, job(tmp_path))
    assert result["state"] == "failed"
    assert result["nonfinite"]["what"] == "loss"
    assert result["nonfinite"]["samples"]
    assert not any(row["step"] >= result["nonfinite"]["step"] for row in result["checkpoints"])
