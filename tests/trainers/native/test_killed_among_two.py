"""One of two processes is killed while a run deals with spikes or with its time: the bits are those of one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import KilledError
from mltrainer.records.job import TrainingJob
from mltrainer.runs.launcher import Placement, launch
from mltrainer.workspace import Project, read_json
from tests.trainers.native import test_rollback, test_spikes
from tests.trainers.native.digits_runs import config, job, make, same, train
from tests.trainers.native.test_ranks import SETTING, bits
from tests.trainers.native.test_spikes import in_two

DOOMED = '''
import pathlib
import signal


def doomed(task):
    """Return a class like a task's, whose second process is killed once at each of some steps."""

    class Doomed(task):
        def __init__(self, kills, **options):
            super().__init__(**options)
            self.kills = kills

        def enter(self, step, length):
            mark = pathlib.Path(f"killed-{step}")
            if step in self.kills and os.environ.get("RANK") == "1" and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            super().enter(step, length)

    return Doomed

'''


def doomed(root: Path, changes: dict[str, Any], kills: list[int]) -> dict[str, Any]:
    """Return changes whose task is killed at some steps; its class is written into the project."""
    name, options = changes["task"]["use"].partition(":")[2], changes["task"].get("options", {})
    with open(root / "digits_task.py", "a") as file:
        file.write(f"{DOOMED}\nDoomed = doomed({name})\n")
    task = {"use": "digits_task:Doomed", "options": {**options, "kills": kills}}
    return {**changes, "task": task, "checkpoint": {"every_n_steps": 2}}


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kills"), [(test_spikes, [9]), (test_rollback, [12, 17])], ids=["skip", "rollback"])
def test_spikes_are_those_of_an_undisturbed_run(tmp_path, way, kills):
    whole = train(test_spikes.project(tmp_path / "whole"), **way.SETTING)
    root = test_spikes.project(tmp_path / "killed")
    changes = doomed(root, way.SETTING, kills)
    for _ in kills:
        with pytest.raises(KilledError):
            in_two(root, changes)
    found = in_two(root, changes)
    assert [row["cause"] for row in found["interruptions"]].count("killed") == len(kills)
    assert found["skipped"] == whole["skipped"]
    assert same(found, whole)


def within(root: Path, changes: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Train in two processes for a time; as in a project, the budget is no part of the run's contract."""
    budgeted = config({**changes, "budget": {"minutes": minutes, "action": "stop"}})
    work = TrainingJob.model_validate({**job(changes), "config": budgeted.model_dump()})
    launch(Project(root), "training_orchestrator", work, lambda _: None, placement=Placement(2))
    return dict(read_json(root / ".mltrainer/runs/run/result.json"))


@pytest.mark.slow
def test_a_budget_ends_the_run_where_it_ends_an_undisturbed_one(tmp_path):
    whole = train(make(tmp_path / "whole"), **SETTING)
    root = make(tmp_path / "killed")
    changes = doomed(root, SETTING, [4])
    with pytest.raises(KilledError):
        within(root, changes, 1e-6)
    stopped = within(root, changes, 1e-6)
    assert (stopped["stop_reason"], stopped["steps"]) == ("budget", 5)
    ended = within(root, changes, 60)
    assert bits(ended, root) == bits(whole, tmp_path / "whole")
    assert [row["cause"] for row in ended["interruptions"]] == ["killed", "budget"]
