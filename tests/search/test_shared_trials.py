"""Trials that several processes train together: one table, whatever their number, and nothing hangs whatever becomes of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.search import pool as pools
from mltrainer.search.pool import places
from mltrainer.search.runs import processes_of
from mltrainer.workspace import read_json
from tests.projects import PROJECT, TASK, write_rings
from tests.search.test_program import LEARNING, run, start, study, table
from tests.waiting import until

SPACE: dict[str, Any] = {"optimizer.lr": {"log_uniform": [1e-4, 1e-1]}, "accumulate": {"choice": [1, 2, 4]}}


def job(**changes: Any) -> dict[str, Any]:
    return {**study(SPACE, 8, epochs=4, accumulate=2), **LEARNING, "seeds": 1, "workers": 1, **changes}


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of the study whose trials are trained by one process each."""
    found = run(write_rings(tmp_path_factory.mktemp("alone")).root, job())[2]
    assert {"pruned", "finished"} <= {trial["state"] for trial in found["trials"]}
    return found


@pytest.mark.slow
@pytest.mark.long
def test_the_table_is_that_of_one_process(tmp_path, alone):
    root = write_rings(tmp_path).root
    code, said, found = run(root, job(processes=2, workers=2))
    assert code == 0, said
    assert table(found) == table(alone)
    assert found["comparison"] == alone["comparison"]
    trained = {read_json(root / f".mltrainer/runs/{trial['run']}/result.json").get("processes") for trial in found["trials"]}
    assert trained == {2, None}  # those of `accumulate: 1` have nothing to share


ENDS = TASK.replace("pause=0.0):", 'pause=0.0, end=""):').replace(
    "n, pause\n", "n, pause\n        self.end, self.calls = end, 0\n", 1
)
ENDS = ENDS.replace(
    "        time.sleep(self.pause)\n",
    """        import os, pathlib, signal
        self.calls += 1
        if os.environ.get("RANK") == "1" and self.calls in (1, 8):  # before the steps, and in them
            if self.end == ("dies" if self.calls == 1 else "killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.end == "raises" and self.calls == 8:
                raise ValueError("no such loss")
            if self.end == "hangs" and self.calls == 8 and not pathlib.Path("hung").exists():
                pathlib.Path("hung").touch()
                time.sleep(600)
""",
)


def processes_of_folder(root: Path) -> list[str]:
    """Return the commands of the processes that work in a project."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "cwd") == str(root):
                found.append((path / "cmdline").read_text())
    return [command for command in found if command]


@pytest.mark.slow
@pytest.mark.long
def test_a_process_that_is_killed_fails_or_hangs_ends_its_trial_alone(tmp_path):
    root = write_rings(tmp_path, ENDS).root
    space = {"task.options.end": {"choice": ["killed", "dies", "raises", "hangs"]}}
    config = {"epochs": 2, "accumulate": 2, "launch": {"life_sign_s": 5}}
    code, said, found = run(root, {**study(space, 4, **config), "strategy": "grid", "seeds": 1, "workers": 1, "processes": 2})
    assert code == 0, said
    killed, dead, raised, hung = found["trials"]
    assert [(one["state"], one["attempts"]) for one in (killed, hung)] == [("finished", 2), ("finished", 2)]
    assert "process 1 of 2 hangs in step 6 at my_task.py:" in said
    lost = "process 1 of 2 was ended by signal 9 (SIGKILL); the others were ended with it, 3 times"
    assert (dead["state"], dead["reason"]) == ("failed", lost)
    assert (raised["state"], raised["reason"].partition(": ")[2]) == ("failed", "ValueError: no such loss")
    assert processes_of_folder(root) == []


@pytest.mark.slow
@pytest.mark.long
def test_a_search_that_was_killed_goes_on_to_the_same_table(tmp_path, alone):
    root = write_rings(tmp_path).root
    together = job(processes=2)
    process = start(root, together)
    until(lambda: process.poll() is not None or len(list(root.glob(".mltrainer/runs/*/chain.txt"))) >= 5)
    process.kill()
    process.communicate()
    code, said, found = run(root, together)
    assert code == 0, said
    assert table(found) == table(alone)
    until(lambda: not processes_of_folder(root))


@pytest.mark.parametrize(
    ("config", "most", "expected"),
    [
        ({"accumulate": 4}, 4, 4),
        ({"accumulate": 3}, 4, 4),
        ({"accumulate": 2}, 4, 2),
        ({"accumulate": 1}, 4, 1),
        ({"accumulate": 4, "launch": {"parallel": "zero1"}, "optimizer": {"name": "sgd", "lr": 0.1, "sam": {"rho": 0.05}}}, 4, 1),
    ],
)
def test_a_trial_has_as_many_processes_as_can_share_its_steps(config, most, expected):
    assert processes_of(TrainingConfig.model_validate({**PROJECT, "epochs": 1, **config}), most) == expected


def test_workers_have_their_own_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(pools, "cores", lambda: 16)
    assert places(None, "cpu", 2, 4) == [{}, {}]
    assert places(None, "cpu", 8, 4) == [{}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7,8")
    named = [{"CUDA_VISIBLE_DEVICES": "3,5"}, {"CUDA_VISIBLE_DEVICES": "6,7"}]
    assert places(None, "cuda", 1, 2) == named
    assert places(3, "cuda", 1, 2) == [*named, named[0]]
    with pytest.raises(InputError, match="8 processes need a GPU each, and 5 may be used here"):
        places(2, "cuda", 1, 8)
